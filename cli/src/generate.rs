//! `leasehold generate`: shell completions and manual pages.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::args::{Cli, GenerateArgs, What};
use crate::exit::{Failure, code};
use crate::output::{Output, print};

pub(crate) fn generate(args: &GenerateArgs, output: Output) -> Result<u8, Failure> {
    match (&args.dir, shell(args.what)) {
        (Some(dir), None) => pages(dir, output)?,
        (None, shell) => text(shell, output)?,
        (Some(_), Some(_)) => {
            return Err(Failure::usage(
                "--dir goes with `man`; redirect completions to where your shell reads them",
            ));
        }
    }
    Ok(code::DONE)
}

/// `None`: the manual.
fn shell(what: What) -> Option<Shell> {
    match what {
        What::Bash => Some(Shell::Bash),
        What::Elvish => Some(Shell::Elvish),
        What::Fish => Some(Shell::Fish),
        What::Powershell => Some(Shell::PowerShell),
        What::Zsh => Some(Shell::Zsh),
        What::Man => None,
    }
}

/// To stdout as it is, because a shell reads it; to scripts as one object.
fn text(shell: Option<Shell>, output: Output) -> Result<(), Failure> {
    let mut command = Cli::command();
    let mut text = Vec::new();
    match shell {
        Some(shell) => clap_complete::generate(shell, &mut command, "leasehold", &mut text),
        None => clap_mangen::Man::new(command)
            .render(&mut text)
            .map_err(not_written)?,
    }
    let text = String::from_utf8_lossy(&text);
    if output.json {
        output.answer("", &json!({ "text": text }))
    } else {
        print(&text)
    }
}

/// One page for each subcommand. People hear nothing of what went well.
fn pages(dir: &Path, output: Output) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), dir).map_err(not_written)?;
    if output.json {
        output.answer("", &json!({ "dir": dir }))?;
    }
    Ok(())
}

fn not_written(why: std::io::Error) -> Failure {
    Failure::system("the manual could not be written", &why)
}
