//! The other processes of our process group: those of one pipeline, as in
//! `leasehold run ... | less`.

/// Whether our process group has processes that are neither we nor our ancestors. A shell that
/// waits for us is an ancestor, and lends us its terminal; a peer in our pipeline uses the terminal
/// itself.
#[cfg(target_os = "linux")]
pub(super) fn has_peers() -> bool {
    use nix::unistd::{getpgrp, getpid};

    let (us, group) = (getpid().as_raw(), getpgrp().as_raw());
    let members = processes();
    let mut ancestors = vec![us];
    let parent_of = |id: i32| members.iter().find(|member| member.id == id);
    while let Some(process) = ancestors.last().and_then(|id| parent_of(*id)) {
        if ancestors.contains(&process.parent) {
            break;
        }
        ancestors.push(process.parent);
    }
    members
        .iter()
        .any(|member| member.group == group && !member.is_dead && !ancestors.contains(&member.id))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_peers() -> bool {
    false
}

/// All processes that we can see.
#[cfg(target_os = "linux")]
pub(super) fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

#[cfg(target_os = "linux")]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) parent: i32,
    group: i32,
    pub(super) is_dead: bool,
}

#[cfg(target_os = "linux")]
impl Process {
    /// `None` for a process that has ended meanwhile.
    fn read(id: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before it is in brackets, and may contain any character.
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        Some(Self {
            id,
            is_dead,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}
