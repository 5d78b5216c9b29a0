//! A proxy that reads the commands of a client, answers some by itself, and ends connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What it does to every connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    /// Refuses `INFO`.
    RefusesInfo,
    /// Answers `INFO` with this.
    AnswersInfo(&'static str),
    /// Refuses every script that is named by its hash, as a replica does.
    RefusesScripts,
    /// Ends a connection once it is subscribed to a channel.
    EndsSubscribers,
}

pub(crate) struct Meddler {
    port: u16,
    dials: Arc<AtomicUsize>,
}

impl Meddler {
    /// In front of a loopback port. Its threads end with the test's process.
    pub(crate) fn before(server: u16, habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dials = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dials);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                // A server that is down refuses: so does the proxy, by closing.
                if let (Ok(client), Ok(server)) =
                    (client, TcpStream::connect(("127.0.0.1", server)))
                {
                    carry(client, server, habit);
                }
            }
        });
        Self { port, dials }
    }

    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{query}", self.port)
    }

    /// How many connections clients have made.
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }
}

fn carry(client: TcpStream, server: TcpStream, habit: Habit) {
    let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
    let both = ends.each_ref().map(|end| end.try_clone().unwrap());
    std::thread::spawn(move || {
        // An end that is gone ends the other one.
        let _ = up(&client, &server, habit);
        close(&ends);
    });
    std::thread::spawn(move || {
        let _ = down(&both, habit);
        close(&both);
    });
}

fn close(ends: &[TcpStream; 2]) {
    for end in ends {
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn up(mut client: &TcpStream, mut server: &TcpStream, habit: Habit) -> std::io::Result<()> {
    let mut commands = BufReader::new(client.try_clone()?);
    while let Some((bytes, name)) = command(&mut commands)? {
        let is_info = name.eq_ignore_ascii_case(b"INFO");
        match habit {
            Habit::RefusesInfo if is_info => {
                client.write_all(b"-ERR unsupported command 'INFO'\r\n")?;
            }
            Habit::AnswersInfo(answer) if is_info => {
                write!(client, "${}\r\n{answer}\r\n", answer.len())?;
            }
            Habit::RefusesScripts if name.eq_ignore_ascii_case(b"EVALSHA") => {
                client.write_all(b"-READONLY You can't write against a read only replica.\r\n")?;
            }
            _ => server.write_all(&bytes)?,
        }
    }
    Ok(())
}

fn down([client, server]: &[TcpStream; 2], habit: Habit) -> std::io::Result<()> {
    let (mut client, mut server, mut buffer) = (client, server, [0; 16 * 1024]);
    loop {
        let length = server.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        client.write_all(&buffer[..length])?;
        let is_subscribed = buffer[..length].windows(9).any(|word| word == b"subscribe");
        if matches!(habit, Habit::EndsSubscribers) && is_subscribed {
            return Ok(());
        }
    }
}

/// The bytes of the next command, and its first word.
fn command(from: &mut impl BufRead) -> std::io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (mut bytes, mut name) = (Vec::new(), None);
    let words = number(from, &mut bytes)?;
    for _ in 0..words.unwrap_or(0) {
        let length = number(from, &mut bytes)?.unwrap_or(0);
        let start = bytes.len();
        bytes.resize(start + length + 2, 0);
        from.read_exact(&mut bytes[start..])?;
        name.get_or_insert_with(|| bytes[start..start + length].to_vec());
    }
    Ok(name.map(|name| (bytes, name)))
}

/// The number of a line such as `*3` or `$5`, which is added to `bytes`.
fn number(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    let start = bytes.len();
    from.read_until(b'\n', bytes)?;
    let line = str::from_utf8(&bytes[start..]).unwrap_or_default();
    Ok(line.get(1..).and_then(|digits| digits.trim().parse().ok()))
}
