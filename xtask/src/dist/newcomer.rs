//! An archive, used by someone who has nothing else: the test of an empty home folder with the
//! program of the archive, and two packages that ask its server.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::unpack;
use crate::clients;
use crate::repository::root;

/// The test that begins with an empty home folder.
const TEST: &str =
    "home::from_an_empty_home_models_are_pulled_used_and_quantised_and_nothing_else_is_written";

/// Unpacks the archive `file`, in which everything is below `name`, and has its program tried.
pub fn check(file: &Path, name: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let place = folder.path().join("an empty folder");
    unpack(file, &place)?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    // The whole workspace's features, so that nothing is compiled anew for it.
    test.current_dir(root()).args(["test", "--workspace", "--test", "end_to_end", "--", "--exact"]);
    test.arg(TEST).env("ML_UNPACKED", place.join(name));
    let script = clients::script("newcomer")?;
    if let Some(script) = &script {
        let [first] = &script.args[..] else { anyhow::bail!("the script has other arguments") };
        test.env("ML_NEWCOMER_PYTHON", &script.program).env("ML_NEWCOMER_SCRIPT", first);
    }
    let output = test.output().context("cannot start cargo")?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let said = said.concat();
    ensure!(output.status.success() && said.contains("1 passed"), "{said}");
    let asked = if script.is_some() { ", is served to two packages" } else { "" };
    eprintln!(
        "from an empty home: pulls, chats offline{asked}, quantises, and writes nowhere else"
    );
    Ok(())
}
