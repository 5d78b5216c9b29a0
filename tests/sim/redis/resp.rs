//! [`Reply`]: the words of the protocol, version 3.

/// What a server says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Status(&'static str),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// Not the answer to a request, or that to a subscription.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut line = |sign: char, text: &str| {
            out.extend_from_slice(format!("{sign}{text}\r\n").as_bytes());
        };
        match self {
            Self::Status(text) => line('+', text),
            Self::Error(text) => line('-', text),
            Self::Int(number) => line(':', &number.to_string()),
            Self::Nil => line('_', ""),
            Self::Bulk(bytes) => {
                line('$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(parts) | Self::Push(parts) => {
                let sign = if matches!(self, Self::Push(_)) {
                    '>'
                } else {
                    '*'
                };
                line(sign, &parts.len().to_string());
                parts.iter().for_each(|part| part.write(out));
            }
            Self::Map(pairs) => {
                line('%', &pairs.len().to_string());
                for (name, value) in pairs {
                    name.write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// Takes the next whole command from what was received.
pub(crate) fn next_command(received: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let count = number(received, &mut at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let size = number(received, &mut at, b'$')?;
        words.push(received.get(at..at + size)?.to_vec());
        at += size + 2;
    }
    if at > received.len() {
        return None;
    }
    received.drain(..at);
    Some(words)
}

fn number(received: &[u8], at: &mut usize, sign: u8) -> Option<usize> {
    let rest = received.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], sign, "a client sends arrays of strings");
    let digits = std::str::from_utf8(&rest[1..end]).expect("digits");
    *at += end + 2;
    Some(digits.parse().expect("digits"))
}
