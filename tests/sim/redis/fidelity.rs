//! The simulated server beside a real one: both run the scripts of the store in the same random
//! order, and must answer the same and have the same keys in the end. The simulated one has the
//! time of the real one, so times may differ by what a call takes.

#![allow(
    clippy::disallowed_methods,
    reason = "the real server beside it has the machine's time"
)]

mod database;
#[allow(dead_code, reason = "worlds use the rest")]
#[path = "../dice.rs"]
mod dice;
mod keys;
mod lua;
#[allow(dead_code, reason = "worlds use the rest")]
mod resp;
#[allow(dead_code, reason = "worlds use the rest")]
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use dice::Dice;
use keys::Keys;
use resp::Reply;
use server::Server;

const SEQUENCES: u64 = 400;
const STEPS: usize = 40;
/// Every span, in milliseconds: longer than any machine stalls.
const SPAN: &str = "100000";
/// No sequence takes longer.
const AT_MOST: Duration = Duration::from_millis(900);
const LOCKS: [&str; 2] = ["a", "b"];

/// As the store sends it.
macro_rules! script {
    ($file:literal) => {{
        let line = include_str!("../../../src/redis/store/scripts/line.lua");
        include_str!(concat!("../../../src/redis/store/scripts/", $file, ".lua"))
            .replace("--@line\n", line)
    }};
}

/// A real server, ended by its id.
struct Real {
    child: Child,
    folder: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Real {
    fn start() -> Self {
        let folder =
            std::env::temp_dir().join(format!("leasehold-fidelity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("s");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
            .arg(&folder)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::yield_now();
        };
        let stream = BufReader::new(stream);
        let mut real = Self {
            child,
            folder,
            stream,
        };
        real.ask(&words(&["HELLO", "3"]));
        real
    }

    fn ask(&mut self, words: &[Vec<u8>]) -> Reply {
        let mut bytes = Vec::new();
        Reply::Array(words.iter().cloned().map(Reply::Bulk).collect()).write(&mut bytes);
        self.stream
            .get_mut()
            .write_all(&bytes)
            .expect("the server reads");
        self.reply()
    }

    fn reply(&mut self) -> Reply {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server answers");
        let (sign, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<usize>().expect("a count");
        match sign {
            "+" => Reply::Status("OK"),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().expect("a number")),
            "_" => Reply::Nil,
            "$" | "=" => {
                let mut bytes = vec![0; count() + 2];
                self.stream
                    .read_exact(&mut bytes)
                    .expect("the server answers");
                bytes.truncate(count());
                // Before a text for people is its kind.
                let kind = if sign == "=" { 4 } else { 0 };
                Reply::Bulk(bytes.split_off(kind))
            }
            "*" | "~" => Reply::Array((0..count()).map(|_| self.reply()).collect()),
            "%" => Reply::Map((0..count()).map(|_| (self.reply(), self.reply())).collect()),
            "," => Reply::text(rest),
            _ => panic!("a reply {line:?}"),
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Both servers, and the mark of each.
struct Pair {
    real: Real,
    simulated: Server,
    marks: [String; 2],
    log: Vec<String>,
}

impl Pair {
    fn each(&mut self, words: [&[Vec<u8>]; 2]) -> [Reply; 2] {
        let real = self.real.ask(words[0]);
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("now");
        self.simulated.database.micros = since.as_micros() as u64;
        let said = self.simulated.execute(1, words[1]);
        let (_, simulated) = said.into_iter().next_back().expect("an answer");
        [real, simulated]
    }

    /// The same to both, except that `MARK` is that of each.
    fn same(&mut self, of: &[&str]) -> [Reply; 2] {
        let with = |mark: &String| {
            let of = of
                .iter()
                .map(|word| if *word == "MARK" { mark } else { *word });
            words(&of.collect::<Vec<_>>())
        };
        let [real, simulated] = self.marks.each_ref().map(with);
        let replies = self.each([&real, &simulated]);
        let shown: Vec<_> = of
            .iter()
            .map(|word| word.split('\n').next().unwrap_or_default())
            .collect();
        self.log.push(format!("{shown:?}: {replies:?}"));
        assert!(
            is_alike(&replies[0], &replies[1]),
            "they differ:\n{}",
            self.log.join("\n")
        );
        replies
    }

    fn script(&mut self, text: &str, keys: &[String], args: &[&str]) -> [Reply; 2] {
        let count = keys.len().to_string();
        let mut of = vec!["EVAL", text, &count];
        of.extend(keys.iter().map(String::as_str));
        of.extend(args);
        self.same(&of)
    }
}

/// Equal but for times: those of one sequence are within some seconds, whatever their unit.
fn is_alike(one: &Reply, other: &Reply) -> bool {
    match (one, other) {
        (Reply::Array(one), Reply::Array(other)) => {
            let pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.fold(true, |all, (a, b)| all && is_alike(a, b))
        }
        (Reply::Error(one), Reply::Error(other)) => {
            let code = |text: &str| text.split(' ').next().map(str::to_owned);
            code(one) == code(other)
        }
        (Reply::Bulk(one), Reply::Bulk(other)) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            are_alike(&text(one), &text(other))
        }
        (Reply::Int(one), Reply::Int(other)) => are_alike(&one.to_string(), &other.to_string()),
        _ => one == other,
    }
}

fn are_alike(one: &str, other: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split([' ', ':', '@']);
        parts
            .map(|part| part.trim_start_matches(['r', 'w', 'x']).to_owned())
            .collect()
    };
    let (one, other) = (parts(one), parts(other));
    let is_near = |a: &str, b: &str| {
        let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) else {
            return a == b;
        };
        // In microseconds since 1970; in milliseconds; a span.
        let most = if a > 1e14 {
            2e7
        } else if a > 1e4 {
            2e4
        } else if a > 1e2 {
            // What is left of the hold of a claim that was called.
            1e3
        } else {
            0.0
        };
        (a - b).abs() <= most
    };
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| is_near(a, b))
}

fn beside(lock: &str, what: &str) -> String {
    format!("{lock}{{{lock}}}:{what}")
}

fn of_prefix(what: &str) -> String {
    format!("{{leasehold}}:{what}")
}

fn judge(pair: &mut Pair, wait: &str) {
    let keys = ["marker", "token"].map(of_prefix);
    let args = ["30000", wait, "0", "", "3600000", "? 0", "0", "0"];
    let replies = pair.script(&script!("judge"), &keys, &args);
    for (mark, reply) in pair.marks.iter_mut().zip(replies) {
        let Reply::Bulk(text) = reply else {
            panic!("{reply:?}");
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Some(told) = text.strip_prefix("mark ") {
            *mark = told.split_once(' ').unwrap_or_default().1.to_owned();
        }
    }
}

fn step(pair: &mut Pair, dice: &mut Dice) {
    let lock = dice.pick(&LOCKS);
    let owner = format!("{:032x}", 1 + dice.below(4));
    let other = format!("{:032x}", 1 + dice.below(4));
    let claim = format!("{owner} {} here", dice.pick(&["x", "x", "w", "r", "r"]));
    let place = dice.pick(&["0", SPAN, SPAN]);
    let mark = if dice.falls(0.95) { "MARK" } else { "" };
    let (marker, token) = (of_prefix("marker"), of_prefix("token"));
    let of_line = [lock.to_owned(), marker.clone(), token.clone()];
    match dice.below(24) {
        0..=10 => {
            let gone = beside(lock, &format!("gone:{owner}"));
            let keys = [lock.to_owned(), beside(lock, "line"), marker, gone, token];
            let mut args = vec![claim.as_str(), SPAN, mark, place, "1790000000000"];
            if dice.falls(0.1) {
                args.push(dice.pick(&["0", "2000000000000000"]));
            }
            pair.script(&script!("acquire"), &keys, &args);
        }
        11..=14 => {
            let rest = if dice.falls(0.1) { SPAN } else { "0" };
            let gone = if dice.falls(0.3) { SPAN } else { "0" };
            let args = [claim.as_str(), mark, rest, gone, &marker, &token];
            pair.script(&script!("release"), &of_line[..1], &args);
        }
        15 | 16 => {
            let args = [owner + &other, format!("{SPAN} {SPAN} ")];
            let args = args.each_ref().map(String::as_str);
            pair.script(&script!("renew"), &LOCKS.map(str::to_owned), &args);
        }
        17 => {
            let how = dice.pick(&["now", "after"]);
            pair.script(&script!("revoke"), &of_line, &[how, mark]);
        }
        18 => {
            pair.script(&script!("downgrade"), &of_line, &[&claim, mark]);
        }
        19 => {
            pair.script(&script!("inspect"), &LOCKS.map(str::to_owned), &[]);
        }
        20 => {
            let wanted = dice.pick(&["1000000000000001", "9000000000000000"]);
            let keys = [lock.to_owned(), token];
            pair.script(&script!("raise"), &keys, &[&owner, wanted]);
        }
        21 => {
            let note = format!("return {}", dice.below(3));
            let load = dice.falls(0.5);
            let hash = sha1_smol::Sha1::from(&note).digest().to_string();
            if load {
                pair.same(&["SCRIPT", "LOAD", &note]);
            }
            pair.same(&["SCRIPT", "EXISTS", &hash]);
        }
        22 => {
            // A place or a hold ends, or another client takes the lock, or a key is of a wrong
            // type.
            match dice.below(6) {
                5 => pair.same(&["ZADD", &beside(lock, "watchers"), "0", &owner]),
                0 => pair.same(&["PEXPIRE", lock, "0"]),
                1 => pair.same(&["ZADD", &beside(lock, "places"), "1", &claim]),
                2 => pair.same(&["SET", lock, "foreign", "NX", "PX", SPAN]),
                3 => pair.same(&["DEL", lock]),
                _ => pair.same(&["SET", &beside(lock, "queue"), "wrong", "NX", "PX", SPAN]),
            };
        }
        _ => judge(pair, "0"),
    }
}

/// Every key, as both have it.
fn compare_keys(pair: &mut Pair) {
    let [real, _] = pair.each([&words(&["KEYS", "*"]), &words(&["PING"])]);
    let Reply::Array(names) = real else {
        panic!("{real:?}");
    };
    let mut names: Vec<_> = names
        .into_iter()
        .map(|name| {
            if let Reply::Bulk(name) = name {
                name
            } else {
                Vec::new()
            }
        })
        .collect();
    names.sort();
    let now = pair.simulated.database.now();
    let ours: Vec<_> = pair
        .simulated
        .database
        .keys
        .live(now)
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(names, ours, "{}", pair.log.join("\n"));
    for name in ours {
        let name = String::from_utf8(name).expect("a name");
        let read: &[&str] = match &pair
            .simulated
            .database
            .keys
            .get(name.as_bytes(), now)
            .expect("a key")
            .value
        {
            keys::Value::Text(_) => &["GET", &name],
            keys::Value::Hash(_) => &["HGETALL", &name],
            keys::Value::Sorted(_) => &["ZRANGE", &name, "0", "-1", "WITHSCORES"],
        };
        if read[0] == "ZRANGE" {
            // Times that differ by a millisecond have their members in another order.
            let text = "local all = redis.call(unpack(ARGV))
                local members, scores = {}, {}
                for i = 1, #all, 2 do
                  members[#members + 1], scores[all[i]] = all[i], all[i + 1]
                end
                table.sort(members)
                for i, member in ipairs(members) do
                  members[i] = member .. ' ' .. scores[member]
                end
                return members";
            pair.script(text, &[], read);
        } else if read[0] == "HGETALL" {
            // A real hash with a long field has no order.
            let text = "local all = redis.call(unpack(ARGV))
                local fields = {}
                for i = 1, #all, 2 do
                  fields[#fields + 1] = all[i] .. ' ' .. all[i + 1]
                end
                table.sort(fields)
                return fields";
            pair.script(text, &[], read);
        } else {
            pair.same(read);
        }
        pair.same(&["PTTL", &name]);
    }
}

#[test]
fn a_simulated_server_answers_as_a_real_one() {
    let mut pair = Pair {
        real: Real::start(),
        simulated: Server::default(),
        marks: Default::default(),
        log: Vec::new(),
    };
    let info = pair.real.ask(&words(&["INFO"]));
    let Reply::Bulk(info) = info else {
        panic!("{info:?}");
    };
    let info = String::from_utf8(info).expect("a text");
    let field = |name| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.expect("a field").to_owned()
    };
    let about = &mut pair.simulated.database.about;
    about.run_id = field("run_id:");
    about.data_id = field("master_replid:");
    let mut compared = 0;
    for seed in 0..SEQUENCES {
        let mut dice = Dice::new(seed, 1);
        let begin = Instant::now();
        pair.real.ask(&words(&["FLUSHALL"]));
        pair.simulated.database.keys = Keys::default();
        pair.log.clear();
        let wait = if dice.falls(0.1) { SPAN } else { "0" };
        judge(&mut pair, wait);
        for _ in 0..STEPS {
            step(&mut pair, &mut dice);
            // A claim that was called holds for little more, and a machine that stalls may reach
            // its end.
            if begin.elapsed() > AT_MOST {
                break;
            }
        }
        if begin.elapsed() <= AT_MOST {
            compare_keys(&mut pair);
            compared += 1;
        }
    }
    println!("{compared} sequences compared");
    assert!(
        compared > SEQUENCES / 2,
        "only {compared}: the machine is too slow"
    );
}
