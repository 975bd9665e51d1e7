//! The machine that a build runs on.

use std::env;
use std::process::Command;

use crate::target::Release;
use crate::{Error, Target};

/// The variable that names the oldest macOS to build for. Clang, cmake and rustc read it too.
pub(crate) const DEPLOYMENT: &str = "MACOSX_DEPLOYMENT_TARGET";

impl Target {
    /// The machine that this program runs on.
    ///
    /// # Errors
    /// [`Error::UnknownRelease`] when `MACOSX_DEPLOYMENT_TARGET` names no release of macOS.
    pub fn host() -> Result<Self, Error> {
        let output = Command::new("sw_vers").arg("-productVersion").output().ok();
        let here = output.and_then(|output| String::from_utf8(output.stdout).ok());
        Ok(Self {
            os: env::consts::OS.to_owned(),
            arch: env::consts::ARCH.to_owned(),
            os_version: macos_release(deployment().as_deref(), here.as_deref())?,
        })
    }
}

/// The value of [`DEPLOYMENT`], where it has one.
pub(crate) fn deployment() -> Option<String> {
    env::var(DEPLOYMENT).ok().filter(|value| !value.is_empty())
}

/// The release of macOS to build for: the one that is `wanted`, else the one `here`, else 0.0.
fn macos_release(wanted: Option<&str>, here: Option<&str>) -> Result<Release, Error> {
    let Some(wanted) = wanted else {
        return Ok(here.and_then(Release::parse).unwrap_or_default());
    };
    Release::parse(wanted).ok_or_else(|| Error::UnknownRelease { value: wanted.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::macos_release;
    use crate::target::Release;

    #[test]
    fn the_release_that_is_asked_for_comes_before_the_one_here() {
        let release = |wanted, here| macos_release(wanted, here).unwrap();
        assert_eq!(release(Some("15.0"), Some("26.2")), Release::new(15, 0));
        assert_eq!(release(None, Some("26.2.1\n")), Release::new(26, 2));
        assert_eq!(release(None, None), Release::default());
        let text = macos_release(Some("tahoe"), Some("26.2")).unwrap_err().to_string();
        assert!(text.contains("MACOSX_DEPLOYMENT_TARGET") && text.contains("`tahoe`"), "{text}");
    }
}
