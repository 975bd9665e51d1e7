//! Variables, arguments and files of an agent, as data.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::failure::{Failure, Result, reason};

/// The variable with the server's key. It is no flag, because other users of a machine see flags.
pub const API_KEY: &str = "ML_LAUNCH_API_KEY";

/// Variables and arguments that an agent is started with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Variables that are set.
    pub variables: Vec<(&'static str, String)>,
    /// Variables that are not handed on.
    pub removed: &'static [&'static str],
    /// Arguments in front of the user's.
    pub arguments: Vec<OsString>,
    /// A folder that goes with the agent, where it takes settings from files alone.
    pub folder: Option<Folder>,
}

/// A file of an agent's folder.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the folder.
    pub path: &'static str,
    /// Its text.
    pub text: String,
    /// The text that people are shown in its place, where it has more of theirs than they want to
    /// see on a screen.
    pub shown: Option<String>,
}

/// How an agent is told of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// By a variable with the folder's path.
    Variable(&'static str),
    /// By a flag with the folder's path.
    Flag(&'static str),
    /// By a flag with the file's path.
    FlagOfFile(&'static str),
}

/// A folder with settings, which goes with the agent.
#[derive(Debug, PartialEq, Eq)]
pub struct Folder {
    /// The settings.
    pub file: File,
    /// How the agent is told.
    pub told: Told,
    /// A folder of the user's whose other entries are linked beside the file.
    pub beside: Option<PathBuf>,
    /// Folders there that the agent is to find again. They are made where there are none.
    pub kept: &'static [&'static str],
}

impl Folder {
    /// Makes it, for this user alone.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self) -> Result<TempDir> {
        let own = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("ml-launch-").permissions(own).tempdir();
        let failed =
            |error: std::io::Error| Failure::Other(format!("a folder: {}", reason(&error)));
        for kept in self.beside.iter().flat_map(|own| self.kept.iter().map(|name| own.join(name))) {
            fs::create_dir_all(&kept).map_err(|error| {
                Failure::Other(format!("{}: {}", kept.display(), reason(&error)))
            })?;
        }
        let made = made.map_err(failed)?;
        let file = made.path().join(self.file.path);
        let parent = file.parent().unwrap_or(made.path());
        fs::create_dir_all(parent).map_err(failed)?;
        fs::write(&file, &self.file.text).map_err(failed)?;
        // Where there is none, there is nothing to link.
        let entries = self.beside.as_ref().and_then(|folder| fs::read_dir(folder).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let place = parent.join(entry.file_name());
            if place != file {
                symlink(entry.path(), place).map_err(failed)?;
            }
        }
        Ok(made)
    }

    /// The arguments by which the agent is told of the folder at `path`.
    pub fn arguments(&self, path: &Path) -> Vec<OsString> {
        match self.told {
            Told::Variable(_) => Vec::new(),
            Told::Flag(flag) => vec![flag.into(), path.into()],
            Told::FlagOfFile(flag) => vec![flag.into(), path.join(self.file.path).into()],
        }
    }

    /// The variable by which the agent is told.
    pub fn variable(&self) -> Option<&'static str> {
        match self.told {
            Told::Variable(name) => Some(name),
            Told::Flag(_) | Told::FlagOfFile(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{File, Folder, Told};

    #[test]
    fn a_folder_has_its_file_and_what_lies_beside_it_elsewhere() {
        let own = tempfile::tempdir().unwrap();
        fs::write(own.path().join("settings.json"), "{}").unwrap();
        fs::write(own.path().join("GEMINI.md"), "be brief").unwrap();
        let text = "{\"a\":1}".into();
        let file = File { path: ".gemini/settings.json", text, shown: None };
        let beside = Some(own.path().to_owned());
        let folder = Folder { file, told: Told::Flag("--at"), beside, kept: &["tmp"] };
        let made = folder.make().unwrap();
        fs::write(made.path().join(".gemini/tmp/chat"), "hi").unwrap();
        let read = |name: &str| fs::read_to_string(made.path().join(".gemini").join(name)).unwrap();
        assert_eq!(
            (read("settings.json").as_str(), read("GEMINI.md").as_str()),
            ("{\"a\":1}", "be brief")
        );
        assert_eq!(fs::read_to_string(own.path().join("settings.json")).unwrap(), "{}");
        let mode = made.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may look into it: {mode:o}");
        let path = made.path().to_owned();
        drop(made);
        assert!(!path.exists() && own.path().join("GEMINI.md").exists());
        assert_eq!(fs::read_to_string(own.path().join("tmp/chat")).unwrap(), "hi");
    }
}
