//! The scripts, and how they are called: by the hash, and by the text if the server does not know
//! the hash (after a restart, or `SCRIPT FLUSH`), which loads the script again. A server that does
//! not know the hash has executed nothing.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::sync::LazyLock;

use ::redis::Cmd;

/// A script's text, and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = ::redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// The command that puts the text into the script cache.
    pub(super) fn load(&self) -> Cmd {
        let mut load = ::redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&*self.text);
        load
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let text = include_str!(concat!("scripts/", $file));
            // What ends holds and what grants them shares the line of the lock.
            Script::new(text.replace("--@line\n", include_str!("scripts/line.lua")))
        });
    )*};
}

scripts! {
    ACQUIRE = "acquire.lua";
    DOWNGRADE = "downgrade.lua";
    INSPECT = "inspect.lua";
    JUDGE = "judge.lua";
    RAISE = "raise.lua";
    RELEASE = "release.lua";
    RENEW = "renew.lua";
    REVOKE = "revoke.lua";
}

/// Notes that a claim without a place is to be notified when the lock is free, and until when.
/// Those whose time is over make room.
pub(super) static WATCH: LazyLock<Script> = LazyLock::new(|| {
    let text = "local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, 500)
if ended[1] then
  redis.call('ZREM', KEYS[1], unpack(ended))
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
    Script::new(text)
});

/// One call of a script: its keys and arguments, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    text: Vec<u8>,
    /// Where each key and then each argument ends.
    ends: Vec<usize>,
    keys: usize,
}

impl Call {
    /// Without a key yet: keys follow, and then [`end_keys`](Self::end_keys). Most calls fit into
    /// its memory.
    pub(super) fn sized() -> Self {
        Self {
            text: Vec::with_capacity(256),
            ends: Vec::with_capacity(8),
            keys: 0,
        }
    }

    /// What follows are arguments.
    pub(super) fn end_keys(mut self) -> Self {
        self.keys = self.ends.len();
        self
    }

    pub(crate) fn new<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut call = Self::default();
        for key in keys {
            call = call.arg(key);
        }
        call.end_keys()
    }

    /// A call whose keys are given in parts.
    pub(super) fn joined<K: IntoIterator<Item: AsRef<[u8]>>>(
        keys: impl IntoIterator<Item = K>,
    ) -> Self {
        let mut call = Self::default();
        for key in keys {
            call = call.parts(key);
        }
        call.end_keys()
    }

    pub(crate) fn arg(self, arg: impl AsRef<[u8]>) -> Self {
        self.parts([arg])
    }

    /// One argument, given in parts.
    pub(super) fn parts(mut self, parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        for part in parts {
            self.text.extend_from_slice(part.as_ref());
        }
        self.ends.push(self.text.len());
        self
    }

    pub(crate) fn number(self, number: u128) -> Self {
        match u64::try_from(number) {
            // Less work than for a wide number.
            Ok(number) => self.written(format_args!("{number}")),
            Err(_) => self.written(format_args!("{number}")),
        }
    }

    /// An argument that is written in place.
    pub(super) fn written(mut self, argument: fmt::Arguments<'_>) -> Self {
        // Writing to memory never fails.
        let _ = self.text.write_fmt(argument);
        self.ends.push(self.text.len());
        self
    }

    /// The name of its first key.
    pub(super) fn first_key(&self) -> &[u8] {
        &self.text[..self.ends.first().copied().unwrap_or(0)]
    }

    pub(crate) fn by_hash(&self, script: &Script) -> Cmd {
        self.command("EVALSHA", &script.hash)
    }

    pub(crate) fn by_text(&self, script: &Script) -> Cmd {
        self.command("EVAL", &script.text)
    }

    fn command(&self, how: &str, script: &str) -> Cmd {
        let size = how.len() + script.len() + self.text.len() + 8;
        let mut command = Cmd::with_capacity(self.ends.len() + 3, size);
        command.arg(how).arg(script).arg(self.keys);
        let mut start = 0;
        for &end in &self.ends {
            command.arg(&self.text[start..end]);
            start = end;
        }
        command
    }
}
