//! The scripts, and how they are called: by the hash, and by the text if the server does not know the hash (after a restart,
//! or `SCRIPT FLUSH`), which loads the script again. A server that does not know the hash has executed nothing.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::sync::LazyLock;

use ::redis::{Cmd, Value};

use super::connection::{Connection, Failure, Session};

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
}

/// The scripts that grant. Their texts name the incarnation of the server for which they were made, so a server that knows
/// the hash is that incarnation.
#[derive(Debug)]
pub(super) struct GrantScripts {
    /// The lock is free or it is not.
    pub(super) attempt: Script,
    /// There is an order.
    pub(super) enter: Script,
    /// The release that may grant to the next in line.
    pub(super) release: Script,
    check: Script,
}

impl GrantScripts {
    /// `incarnation`: a word.
    pub(super) fn of(incarnation: &str) -> Self {
        let script = |rest| {
            Script::new(format!(
                "local INCARNATION = '{incarnation}'\n{}{rest}",
                include_str!("scripts/tokens.lua")
            ))
        };
        Self {
            attempt: script(include_str!("scripts/attempt.lua")),
            enter: script(concat!(
                include_str!("scripts/queue.lua"),
                include_str!("scripts/enter.lua")
            )),
            release: Self::release(incarnation),
            check: script(include_str!("scripts/check.lua")),
        }
    }

    /// Whether a server that does not know a text of these may learn it: it is the incarnation. Another one loses this counter, so
    /// that it never grants from it, or refuses.
    pub(super) async fn fit(
        &self,
        session: &Session<'_>,
        tokens: &str,
        counter: &str,
    ) -> Result<bool, Failure> {
        let call = Call::new([tokens]).arg(counter);
        let answer = session.ask(&call.by_verified_text(&self.check)).await?;
        Ok(answer == Value::Int(1))
    }

    /// Begins with the comparison of incarnations, and defines nothing before it knows that somebody waits: most releases end
    /// there.
    fn release(incarnation: &str) -> Script {
        let tokens = include_str!("scripts/tokens.lua");
        Script::new(format!(
            "local INCARNATION, is_other = '{incarnation}', false\nif ARGV[5] then\n{tokens}is_other = is_another(ARGV[5], ARGV[6])\nend\n{}{tokens}{}{}",
            include_str!("scripts/release.lua"),
            include_str!("scripts/queue.lua"),
            include_str!("scripts/hand_on.lua")
        ))
    }
}

macro_rules! of_the_queue {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("scripts/queue.lua"), include_str!($file)))
        });
    )*};
}

// They hand the lock over.
of_the_queue! {
    LEAVE = "scripts/leave.lua";
    DOWNGRADE = "scripts/downgrade.lua";
    REVOKE = "scripts/revoke.lua";
}

pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/release.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/pass_on.lua")
    ))
});

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("scripts/", $file))));
    )*};
}

scripts! {
    ARM = "arm.lua";
    RENEW = "renew.lua";
    INSPECT = "inspect.lua";
    RAISE = "raise.lua";
    REST = "rest.lua";
    WITNESS = "witness.lua";
}

/// One call of a script: its keys and arguments, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    text: Vec<u8>,
    /// Where each key and then each argument ends.
    ends: Vec<usize>,
    keys: usize,
}

impl Call {
    /// Without a key yet: keys follow, and then [`end_keys`](Self::end_keys). Most calls fit into its memory.
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

    /// What a grant says of its holder: the mode, the label, and since when.
    pub(super) fn about(self, mode: &str, label: &str, asked_at: Option<u128>) -> Self {
        match asked_at {
            Some(millis) => self.written(format_args!("{mode}{label} @{millis}")),
            None => self.parts([mode, label]),
        }
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

    pub(crate) fn by_hash(&self, script: &Script) -> Cmd {
        self.command("EVALSHA", &script.hash)
    }

    pub(crate) fn by_text(&self, script: &Script) -> Cmd {
        self.command("EVAL", &script.text)
    }

    /// A script of [`GrantScripts`] by its text. Before it grants, the server compares its incarnation with that of the text.
    pub(super) fn by_verified_text(&self, script: &Script) -> Cmd {
        self.clone().verified().by_text(script)
    }

    /// The server compares itself with the text, as if it had not known it.
    pub(super) fn verified(self) -> Self {
        self.arg("verify")
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

    /// Runs a script at the node to which the slot of its keys is moving.
    pub(super) async fn run_asking(
        &self,
        script: &Script,
        connection: &Connection,
    ) -> Result<Value, Failure> {
        let mut both = ::redis::pipe();
        both.cmd("ASKING");
        both.add_command(self.by_text(script));
        let answers = connection.ask_all(&both).await?;
        let answer = answers.into_iter().nth(1).unwrap_or(Ok(Value::Nil));
        answer.map_err(Failure::of)
    }

    /// Runs a script over this connection or not at all.
    pub(super) async fn run_in(
        &self,
        script: &Script,
        session: &Session<'_>,
    ) -> Result<Value, Failure> {
        match session.ask(&self.by_hash(script)).await {
            Err(failure) if failure.is_unknown_script() => session.ask(&self.by_text(script)).await,
            answer => answer,
        }
    }

    /// Runs a script over a connection, which is made again if it is dead.
    pub(crate) async fn run(
        &self,
        script: &Script,
        connection: &Connection,
    ) -> Result<Value, Failure> {
        let session = connection.session().await.map_err(Failure::NotSent)?;
        let answer = self.run_in(script, &session).await?;
        session.served();
        Ok(answer)
    }
}
