//! A [`Picture`] as SVG: one chart for each key, in which a deadline is a line that falls with the
//! time and that a renewal lifts.
//!
//! Grey is how long the store keeps a hold, a colour how long a node believes in it, red a belief
//! that the store does not keep. Runs are beneath, coloured by their outcome; faults are on top.

use std::collections::BTreeSet;
use std::fmt::Write;

use leasehold::Key;

use crate::picture::{Bar, Deadlines, Picture};

const LEFT: f64 = 90.0;
const WIDTH: f64 = 1_250.0;
const ROW: f64 = 14.0;
const CHART: f64 = 90.0;
/// How much time before a failure is shown.
const WINDOW: u64 = 12_000_000_000;

const NODES: [&str; 4] = ["#1f77b4", "#2ca02c", "#9467bd", "#8c564b"];

struct Drawing {
    out: String,
    from: u64,
    to: u64,
    /// The longest time that is left of anything.
    tallest: u64,
    y: f64,
}

/// What a world was like, around its failure at the time `failed` if it has one.
pub(crate) fn draw(
    picture: &Picture,
    title: &str,
    failure: Option<(u64, &str)>,
    now: u64,
) -> String {
    let end = failure.map_or(now, |(at, _)| at);
    let from = failure.map_or(0, |(at, _)| at.saturating_sub(WINDOW));
    let to = end + (end - from) / 40 + 1_000_000;
    let all = picture.kept.values();
    let all = all.chain(picture.believed.iter().map(|belief| &belief.deadlines));
    let left = all
        .flatten()
        .filter(|(since, _)| (from..to).contains(since));
    let tallest = left.map(|(since, end)| end - since.min(end)).max();
    let mut drawing = Drawing {
        out: String::new(),
        from,
        to,
        tallest: tallest.unwrap_or_default().max(1),
        y: 20.0,
    };
    drawing.text(10.0, title, "bold", "#000");
    for line in failure.map(|(_, text)| text).into_iter().flat_map(wrapped) {
        drawing.y += 15.0;
        drawing.text(10.0, &line, "normal", "#d62728");
    }
    drawing.y += 20.0;
    let top = drawing.y;
    drawing.axis();
    drawing.faults(&picture.faults);
    let keys: BTreeSet<&Key> = (picture.kept.keys().map(|(key, _)| key))
        .chain(picture.believed.iter().map(|belief| &belief.key))
        .collect();
    for key in keys {
        drawing.key(picture, key);
    }
    let bottom = drawing.y;
    drawing.legend();
    let height = drawing.y + 20.0;
    if let Some((at, _)) = failure {
        let x = drawing.x(at);
        let _ = write!(
            drawing.out,
            "<line class='failure' x1='{x:.1}' x2='{x:.1}' y1='{top:.0}' y2='{bottom:.0}' stroke='#d62728' stroke-dasharray='4 3'/>"
        );
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{:.0}' height='{height:.0}' font-family='sans-serif' font-size='11'>\
         <rect width='100%' height='100%' fill='#fff'/>\n{}</svg>\n",
        LEFT + WIDTH + 20.0,
        drawing.out
    )
}

impl Drawing {
    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.from, self.to) - self.from;
        LEFT + at as f64 / (self.to - self.from) as f64 * WIDTH
    }

    fn is_seen(&self, begin: u64, end: u64) -> bool {
        begin <= self.to && end >= self.from
    }

    fn text(&mut self, x: f64, text: &str, weight: &str, colour: &str) {
        let (y, text) = (self.y, escaped(text));
        let _ = writeln!(
            self.out,
            "<text x='{x:.1}' y='{y:.1}' font-weight='{weight}' fill='{colour}'>{text}</text>"
        );
    }

    fn bar(&mut self, begin: u64, end: u64, colour: &str, class: &str, tip: &str) {
        let (x, y) = (self.x(begin), self.y);
        let (width, tip) = ((self.x(end) - x).max(2.0), escaped(tip));
        let _ = writeln!(
            self.out,
            "<rect class='{class}' x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{:.1}' fill='{colour}'><title>{tip}</title></rect>",
            ROW - 4.0
        );
    }

    /// A mark for each second.
    fn axis(&mut self) {
        let second = 1_000_000_000;
        let step = ((self.to - self.from) / second / 15).max(1);
        let first = self.from.div_ceil(second);
        for seconds in (first..=self.to / second).filter(|s| s.is_multiple_of(step)) {
            let x = self.x(seconds * second);
            self.text(x, &format!("{seconds} s"), "normal", "#666");
        }
        self.y += 8.0;
    }

    fn faults(&mut self, faults: &[Bar]) {
        let places: BTreeSet<&str> = faults.iter().map(|bar| bar.place.as_str()).collect();
        for place in places {
            self.label(place);
            for bar in faults.iter().filter(|bar| bar.place == place) {
                let end = bar.end.unwrap_or(self.to);
                if self.is_seen(bar.begin, end) {
                    let colour = match bar.what {
                        "stopped" => "#ff9f4a",
                        "dead" => "#444",
                        "cut off" => "#e5c100",
                        "down" => "#a33",
                        _ => "#d0f",
                    };
                    self.bar(
                        bar.begin,
                        end,
                        colour,
                        "fault",
                        &tip(bar.what, bar.begin, end),
                    );
                }
            }
            self.y += ROW;
        }
    }

    fn label(&mut self, text: &str) {
        self.y += 9.0;
        self.text(10.0, text, "normal", "#000");
        self.y -= 9.0;
    }

    fn key(&mut self, picture: &Picture, key: &Key) {
        self.y += 10.0;
        let (top, bottom) = (self.y, self.y + CHART);
        self.label(key.as_str());
        let right = LEFT + WIDTH;
        let _ = writeln!(
            self.out,
            "<line x1='{LEFT}' x2='{right}' y1='{bottom:.1}' y2='{bottom:.1}' stroke='#999'/>"
        );
        let tallest = self.tallest as f64 / 1e9;
        self.y = top + 22.0;
        self.text(10.0, &format!("{tallest:.1} s left"), "normal", "#666");
        for ((of, token), deadlines) in &picture.kept {
            if of == key {
                let tip = format!("the store keeps {key} under {token}");
                self.falling(deadlines, bottom, "kept", "fill='#ddd' stroke='#aaa'", &tip);
            }
        }
        let of_key = || picture.believed.iter().filter(|belief| belief.key == *key);
        for belief in of_key() {
            let style = format!(
                "fill='none' stroke='{}' stroke-width='1.5'",
                NODES[belief.node % 4]
            );
            let tip = format!(
                "node {} believes in {key} under {}",
                belief.node, belief.token
            );
            self.falling(&belief.deadlines, bottom, "believed", &style, &tip);
            let none = Vec::new();
            let kept = picture
                .kept
                .get(&(key.clone(), belief.token))
                .unwrap_or(&none);
            self.y = bottom - 3.0;
            for (begin, end) in uncovered(&belief.deadlines, kept, picture.delay) {
                if self.is_seen(begin, end) {
                    self.bar(
                        begin,
                        end,
                        "#d62728",
                        "uncovered",
                        &format!("{tip}, for longer than the store keeps it"),
                    );
                }
            }
        }
        self.y = bottom + 10.0;
        let nodes: BTreeSet<&str> = (picture.runs.iter())
            .filter(|run| is_of(picture, run, key))
            .map(|run| run.place.as_str())
            .collect();
        for node in nodes {
            self.label(&format!("{node}: runs"));
            for run in picture
                .runs
                .iter()
                .filter(|run| is_of(picture, run, key) && run.place == node)
            {
                let end = run.end.unwrap_or(self.to);
                if self.is_seen(run.begin, end) {
                    self.bar(
                        run.begin,
                        end,
                        colour(run.what),
                        "run",
                        &tip(run.what, run.begin, end),
                    );
                }
            }
            self.y += ROW;
        }
    }

    /// What is left, as an area under lines that fall.
    fn falling(&mut self, deadlines: &Deadlines, bottom: f64, class: &str, style: &str, tip: &str) {
        let height = |left: u64| bottom - left as f64 / self.tallest as f64 * CHART;
        let mut points = String::new();
        for (number, &(since, end)) in deadlines.iter().enumerate() {
            let next = deadlines.get(number + 1).map_or(self.to, |(next, _)| *next);
            let until = end.min(next);
            if end <= since || !self.is_seen(since, until) {
                continue;
            }
            // What began before the picture enters it on its way down.
            let first = since.max(self.from);
            let last = until.min(self.to);
            if points.is_empty() {
                let _ = write!(points, "{:.1},{bottom:.1} ", self.x(first));
            }
            let _ = write!(
                points,
                "{:.1},{:.1} {:.1},{:.1} ",
                self.x(first),
                height(end - first),
                self.x(last),
                height(end - last)
            );
            if last == end
                || deadlines
                    .get(number + 1)
                    .is_none_or(|(since, end)| end <= since)
            {
                let _ = write!(points, "{:.1},{bottom:.1} ", self.x(last));
            }
        }
        if !points.is_empty() {
            let tip = escaped(tip);
            let _ = writeln!(
                self.out,
                "<polyline class='{class}' points='{}' {style}><title>{tip}</title></polyline>",
                points.trim_end()
            );
        }
    }

    fn legend(&mut self) {
        self.y += 24.0;
        let mut x = 10.0;
        let nodes = NODES.iter().enumerate();
        let nodes = nodes.map(|(node, colour)| (format!("node {node} believes"), *colour));
        let ends = [
            "committed",
            "rolled back",
            "not started",
            "fenced",
            "in doubt",
            "incomplete",
            "committed late",
            "dropped",
            "in progress",
        ];
        let ends = ends.map(|end| (end.to_owned(), colour(end)));
        let kept = [
            ("the store keeps".to_owned(), "#aaa"),
            ("believed for longer than kept".to_owned(), "#d62728"),
        ];
        for (name, colour) in kept.into_iter().chain(nodes).chain(ends) {
            if x > LEFT + WIDTH - 100.0 {
                (x, self.y) = (10.0, self.y + 16.0);
            }
            self.text(x, "■", "bold", colour);
            self.text(x + 13.0, &name, "normal", "#000");
            x += 25.0 + 6.2 * name.len() as f64;
        }
    }
}

fn is_of(picture: &Picture, run: &Bar, key: &Key) -> bool {
    picture
        .believed
        .get(run.lease)
        .is_some_and(|belief| belief.key == *key)
}

/// While what is believed ends later than what the store keeps, less the lock delay.
fn uncovered(believed: &Deadlines, kept: &Deadlines, delay: u64) -> Vec<(u64, u64)> {
    let changes: BTreeSet<u64> = believed
        .iter()
        .chain(kept)
        .map(|(since, _)| *since)
        .collect();
    let at = |deadlines: &Deadlines, now: u64| {
        let last = deadlines.iter().rfind(|(since, _)| *since <= now);
        last.map_or(0, |(_, end)| *end)
    };
    let mut found = Vec::new();
    let mut changes = changes.into_iter().peekable();
    while let Some(now) = changes.next() {
        let until = changes.peek().copied().unwrap_or(u64::MAX);
        let end = at(believed, now);
        if end > now && end + delay > at(kept, now) {
            found.push((now, end.min(until)));
        }
    }
    found
}

fn tip(what: &str, begin: u64, end: u64) -> String {
    let [begin, end] = [begin, end].map(|at| at as f64 / 1e9);
    format!("{what}, {begin:.3} s to {end:.3} s")
}

fn colour(end: &str) -> &'static str {
    match end {
        "committed" => "#2ca02c",
        "rolled back" => "#f2b134",
        "not started" => "#999",
        "fenced" => "#17becf",
        "in doubt" => "#9467bd",
        "incomplete" | "panicked" => "#e377c2",
        "committed late" => "#d62728",
        "dropped" | "died with its process" => "#444",
        _ => "#cfe3f5",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
}

/// Lines that fit the width.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if lines
            .last()
            .is_some_and(|line| line.len() + word.len() > 190)
        {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += word;
            line.push(' ');
        }
    }
    lines
}
