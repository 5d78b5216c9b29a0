//! A proxy that reads the commands of a client, answers some by itself, and ends connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

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
    /// Refuses every script without a key, by which it would choose a server.
    NeedsKeys,
}

pub(crate) struct Meddler {
    port: u16,
    dials: Arc<AtomicUsize>,
    server: Arc<AtomicU16>,
}

impl Meddler {
    /// In front of a loopback port. Its threads end with the test's process.
    pub(crate) fn before(server: u16, habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let dials = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&dials);
        let server = Arc::new(AtomicU16::new(server));
        let present = Arc::clone(&server);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                // A server that is down refuses: so does the proxy, by closing.
                if let (Ok(client), Ok(server)) = (
                    client,
                    TcpStream::connect(("127.0.0.1", present.load(Ordering::Relaxed))),
                ) {
                    carry(client, server, habit, &present);
                }
            }
        });
        Self {
            port,
            dials,
            server,
        }
    }

    /// Carries commands to another server from now on, also those of present connections.
    pub(crate) fn moves_to(&self, server: u16) {
        self.server.store(server, Ordering::Relaxed);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{query}", self.port)
    }

    /// How many connections clients have made.
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }
}

fn carry(client: TcpStream, server: TcpStream, habit: Habit, present: &Arc<AtomicU16>) {
    let present = Arc::clone(present);
    let ends = [client.try_clone().unwrap(), server.try_clone().unwrap()];
    let both = ends.each_ref().map(|end| end.try_clone().unwrap());
    std::thread::spawn(move || {
        // An end that is gone ends the other one.
        let _ = up(&client, &server, habit, &present);
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

fn up(
    mut client: &TcpStream,
    server: &TcpStream,
    habit: Habit,
    present: &AtomicU16,
) -> std::io::Result<()> {
    let mut server = server.try_clone()?;
    let mut commands = BufReader::new(client.try_clone()?);
    while let Some([bytes, name, keys]) = command(&mut commands)? {
        let port = present.load(Ordering::Relaxed);
        if server.peer_addr()?.port() != port {
            server = other_server(client, port, habit)?;
        }
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
            Habit::NeedsKeys if name.to_ascii_uppercase().starts_with(b"EVAL") && keys == b"0" => {
                client
                    .write_all(b"-ERR eval/evalsha number of keys can't be negative or zero\r\n")?;
            }
            _ => server.write_all(&bytes)?,
        }
    }
    Ok(())
}

/// Another server behind the same connection of a client.
fn other_server(client: &TcpStream, port: u16, habit: Habit) -> std::io::Result<TcpStream> {
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    // What it answers to that ends with how many modules it has.
    server.write_all(b"HELLO 3\r\n")?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"modules\r\n*0\r\n") {
        server.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    let both = [client.try_clone()?, server.try_clone()?];
    std::thread::spawn(move || {
        let _ = down(&both, habit);
        close(&both);
    });
    Ok(server)
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

/// The bytes of the next command, its first word, and its third, which says how many keys a script
/// has.
fn command(from: &mut impl BufRead) -> std::io::Result<Option<[Vec<u8>; 3]>> {
    let (mut bytes, mut all) = (Vec::new(), Vec::new());
    let words = number(from, &mut bytes)?;
    for _ in 0..words.unwrap_or(0) {
        let length = number(from, &mut bytes)?.unwrap_or(0);
        let start = bytes.len();
        bytes.resize(start + length + 2, 0);
        from.read_exact(&mut bytes[start..])?;
        all.push(bytes[start..start + length].to_vec());
    }
    let keys = all.get(2).cloned().unwrap_or_default();
    Ok(all.into_iter().next().map(|name| [bytes, name, keys]))
}

/// The number of a line such as `*3` or `$5`, which is added to `bytes`.
fn number(from: &mut impl BufRead, bytes: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    let start = bytes.len();
    from.read_until(b'\n', bytes)?;
    let line = str::from_utf8(&bytes[start..]).unwrap_or_default();
    Ok(line.get(1..).and_then(|digits| digits.trim().parse().ok()))
}
