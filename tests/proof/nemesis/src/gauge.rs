//! What this process uses: memory, descriptors, threads, tasks.

use crate::event::What;

pub fn read() -> What {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    What::Gauge {
        rss_kib: field("VmRSS:"),
        descriptors: descriptors as u64,
        threads: field("Threads:"),
        tasks: tasks as u64,
    }
}
