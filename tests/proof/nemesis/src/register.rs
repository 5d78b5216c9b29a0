//! The counter in the driver, which worker processes reach over a socket: behind a gate, or open to
//! every write.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use leasehold::run::{Applied, EffectError};
use leasehold::fence::{Fence, FenceGate, Refusal};
use leasehold::{Error, FencingToken, Key};

use crate::plan::KEY;

/// The counter and the log of its writes, in the order in which they were applied.
pub struct Register {
    pub socket: PathBuf,
    gate: FenceGate,
    log: Mutex<Vec<String>>,
}

impl Register {
    /// Serves until the process ends.
    pub fn serve(folder: &Path) -> Arc<Self> {
        let socket = folder.join("counter");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let register = Arc::new(Self {
            socket,
            gate: FenceGate::new(),
            log: Mutex::default(),
        });
        let serving = Arc::clone(&register);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.answer(&stream));
            }
        });
        register
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no thread panics").clone()
    }

    fn number(&self) -> u64 {
        let log = self.log.lock().expect("no thread panics");
        let number = log.last().and_then(|entry| entry.split(' ').nth(2));
        number.map_or(0, |number| number.parse().expect("a number"))
    }

    fn answer(&self, stream: &UnixStream) {
        let mut answers = stream;
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = self.execute(&line);
            // A caller that was killed reads no answer.
            if writeln!(answers, "{answer}").is_err() {
                return;
            }
        }
    }

    fn execute(&self, line: &str) -> String {
        let key: Key = KEY.parse().expect("a key");
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (token, entry) = rest.split_once(' ').unwrap_or((rest, ""));
        let token = token_of(token);
        let append = || {
            let mut log = self.log.lock().expect("no thread panics");
            log.push(entry.to_owned());
        };
        let done = match (verb, token) {
            ("read", _) => return format!("ok {}", self.number()),
            ("open", _) => {
                append();
                Ok(())
            }
            ("raise", Some(token)) => self.gate.raise_to(&key, token),
            ("gate", Some(token)) => self.gate.admit(&key, token, append),
            _ => panic!("no such request: {line}"),
        };
        match done {
            Ok(()) => "ok".to_owned(),
            Err(Refusal::Fenced { seen }) => format!("fenced {}", seen.number()),
            Err(other) => format!("refused {other}"),
        }
    }
}

/// A worker's way to the counter: one connection for each request that is under way.
#[derive(Clone)]
pub struct Caller(PathBuf);

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

impl Caller {
    pub fn of(socket: &Path) -> Self {
        Self(socket.to_owned())
    }

    fn send(&self, request: &str) -> io::Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.0)?;
        writeln!(stream, "{request}")?;
        Ok(BufReader::new(stream))
    }

    fn ask(&self, request: &str) -> io::Result<String> {
        answer(self.send(request)?)
    }

    pub fn read(&self) -> io::Result<u64> {
        let answer = self.ask("read")?;
        let number = answer
            .strip_prefix("ok ")
            .and_then(|text| text.parse().ok());
        number.ok_or(io::ErrorKind::InvalidData.into())
    }

    /// The driver answers at once, so nothing here waits but for one turn of the runtime, between
    /// the request and its answer.
    pub async fn write(
        &self,
        token: u64,
        entry: String,
        is_open: bool,
    ) -> Result<Applied, EffectError> {
        let verb = if is_open { "open" } else { "gate" };
        let sent = self.send(&format!("{verb} {token} {entry}"));
        let sent = sent.map_err(EffectError::unknown)?;
        tokio::task::yield_now().await;
        let answer = answer(sent).map_err(EffectError::unknown)?;
        match answer.split_once(' ') {
            None if is_open => Ok(Applied::plain()),
            None => Ok(Applied::fenced()),
            Some(("fenced", seen)) => Err(EffectError::Fenced {
                seen: token_of(seen),
            }),
            Some(_) => Err(EffectError::not_applied(answer)),
        }
    }
}

fn answer(mut stream: BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn token_of(text: &str) -> Option<FencingToken> {
    FencingToken::new(text.parse().ok()?).ok()
}

impl Fence for Caller {
    async fn raise(&self, _key: &Key, token: FencingToken) -> Result<(), Error> {
        let number = token.number();
        let failed = |why: String| Error::new(leasehold::ErrorKind::Unavailable, why);
        let answer = self
            .ask(&format!("raise {number}"))
            .map_err(|why| failed(why.to_string()))?;
        match answer.split_once(' ') {
            None => Ok(()),
            Some(("fenced", _)) => Err(Error::new(
                leasehold::ErrorKind::Lost(leasehold::Ended::Gone),
                "the counter has seen a larger token",
            )),
            Some(_) => Err(failed(answer)),
        }
    }
}
