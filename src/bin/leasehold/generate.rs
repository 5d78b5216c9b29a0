//! `leasehold generate`: shell completions and manual pages.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, GenerateArgs, What};
use crate::exit::{Failure, code};

pub(crate) fn generate(args: &GenerateArgs) -> Result<u8, Failure> {
    let mut command = Cli::command();
    let shell = match args.what {
        What::Bash => Shell::Bash,
        What::Elvish => Shell::Elvish,
        What::Fish => Shell::Fish,
        What::Powershell => Shell::PowerShell,
        What::Zsh => Shell::Zsh,
        What::Man => {
            let written = match &args.dir {
                Some(dir) => clap_mangen::generate_to(command, dir),
                None => clap_mangen::Man::new(command).render(&mut std::io::stdout()),
            };
            written.map_err(|why| Failure::system("the manual could not be written", &why))?;
            return Ok(code::DONE);
        }
    };
    if args.dir.is_some() {
        return Err(Failure::usage(
            "--dir goes with `man`; send completions where your shell looks for them",
        ));
    }
    clap_complete::generate(shell, &mut command, "leasehold", &mut std::io::stdout());
    Ok(code::DONE)
}
