//! [`run`]: a script of the store, unchanged, in Lua 5.1, as a server runs it: at one instant, by
//! itself.

use std::cell::RefCell;
use std::collections::BTreeMap;

use mlua::{Function, Lua, Table, Value};

use super::database::Database;
use super::resp::Reply;

/// What a script sees beside the libraries of Lua: an error of `redis.call` is a table, and ends
/// the script unless it catches it. A name that nobody defined is an error, as in a server.
const PRELUDE: &str = r"
local ask = ...
redis = {
  pcall = ask,
  call = function(...)
    local answer = ask(...)
    if type(answer) == 'table' and answer.err then
      error(answer, 0)
    end
    return answer
  end,
}
KEYS, ARGV = {}, {}
setmetatable(_G, {
  __newindex = function(_, name) error('a script defines the global ' .. name) end,
  __index = function(_, name) error('a script reads the global ' .. name) end,
})
return function(script)
  local done, answer = pcall(script)
  if done or type(answer) == 'table' then
    return answer
  end
  return {err = 'ERR ' .. tostring(answer)}
end";

struct Machine {
    lua: Lua,
    /// Runs a function, and answers errors as a table.
    runs: Function,
    scripts: BTreeMap<String, Function>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
    /// That of the script that runs.
    static DATABASE: RefCell<Option<Database>> = const { RefCell::new(None) };
}

/// How many texts a machine keeps. Texts say which server they are for, so each world brings its
/// own, and Lua has room for some thousands.
const TEXTS_AT_MOST: usize = 256;

/// Runs a script over a database. A thread keeps the texts that it has compiled, up to
/// [`TEXTS_AT_MOST`].
pub(crate) fn run(
    database: &mut Database,
    hash: &str,
    text: &[u8],
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Reply {
    DATABASE.set(Some(std::mem::take(database)));
    let answer = MACHINE.with_borrow_mut(|machine| {
        let machine = machine.get_or_insert_with(|| Machine::new().expect("a machine for Lua"));
        machine.run(hash, text, keys, args)
    });
    *database = DATABASE.take().expect("the script gave it back");
    answer.unwrap_or_else(|error| Reply::Error(format!("ERR {error}")))
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let lua = Lua::new();
        let ask = lua.create_function(|lua, words: mlua::Variadic<Value>| {
            let words: Option<Vec<_>> = words.iter().map(argument).collect();
            let answer = match words {
                Some(words) => DATABASE.with_borrow_mut(|database| {
                    let database = database.as_mut().expect("a script runs over a database");
                    database.call(&words)
                }),
                None => Reply::Error(
                    "ERR Lua redis lib command arguments must be strings or integers".to_owned(),
                ),
            };
            to_lua(lua, answer)
        })?;
        let runs = lua.load(PRELUDE).call(ask)?;
        Ok(Self {
            lua,
            runs,
            scripts: BTreeMap::new(),
        })
    }

    fn run(
        &mut self,
        hash: &str,
        text: &[u8],
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> mlua::Result<Reply> {
        if !self.scripts.contains_key(hash) {
            if self.scripts.len() == TEXTS_AT_MOST {
                self.scripts.clear();
            }
            let script = self
                .lua
                .load(text)
                .set_name("@user_script")
                .into_function()?;
            self.scripts.insert(hash.to_owned(), script);
        }
        let globals = self.lua.globals();
        for (name, values) in [("KEYS", keys), ("ARGV", args)] {
            let values = values.iter().map(|value| self.lua.create_string(value));
            let values: mlua::Result<Vec<_>> = values.collect();
            globals.raw_set(name, self.lua.create_sequence_from(values?)?)?;
        }
        from_lua(self.runs.call(&self.scripts[hash])?)
    }
}

/// Numbers as a server writes them: all digits that they have.
fn argument(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(number.to_string().into_bytes()),
        Value::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let table = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => table("ok", text),
        Reply::Error(text) => table("err", &text),
        Reply::Int(number) => Ok(Value::Number(number as f64)),
        Reply::Bulk(bytes) => Ok(Value::String(lua.create_string(bytes)?)),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Array(parts) => {
            let parts = parts.into_iter().map(|part| to_lua(lua, part));
            let parts: mlua::Result<Vec<_>> = parts.collect();
            Ok(Value::Table(lua.create_sequence_from(parts?)?))
        }
        Reply::Map(_) | Reply::Push(_) => table("err", "ERR not for scripts"),
    }
}

fn from_lua(value: Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Table(table) => from_table(&table)?,
        _ => Reply::Nil,
    })
}

fn from_table(table: &Table) -> mlua::Result<Reply> {
    if let Some(error) = table.raw_get::<Option<String>>("err")? {
        return Ok(Reply::Error(error));
    }
    if table.raw_get::<Option<String>>("ok")?.is_some() {
        return Ok(Reply::Status("OK"));
    }
    let mut parts = Vec::new();
    loop {
        match table.raw_get(parts.len() + 1)? {
            Value::Nil => return Ok(Reply::Array(parts)),
            part => parts.push(from_lua(part)?),
        }
    }
}
