//! A server that speaks TLS, the commands that ask it, and one that keeps batches.

use std::fs;
use std::path::Path;

use crate::serve::serve;
use crate::{finish, interrupt, ml, text};

/// Writes a certificate for 127.0.0.1 and its key into `folder`.
fn certificate(folder: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let paths = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    fs::write(&paths[0], made.cert.pem()).unwrap();
    fs::write(&paths[1], made.signing_key.serialize_pem()).unwrap();
    paths.map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn commands_ask_a_server_whose_certificate_they_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let (child, address) = serve(&["--tls-cert", &certificate, "--tls-key", &key]);
    let url = format!("https://{address}");
    let show = |more: &[&str]| ml(&[&["show", "--url", &url], more].concat());
    let mut shown = show(&["--tls-ca", &certificate]);
    while text(&shown.stderr).contains("is being loaded") {
        shown = show(&["--tls-ca", &certificate]);
    }
    assert!(text(&shown.stdout).starts_with("demo\n"), "{}", text(&shown.stderr));

    let unknown = text(&show(&[]).stderr);
    assert!(unknown.contains("--tls-ca"), "{unknown}");
    let no_certificate = text(&show(&["--tls-ca", &key]).stderr);
    assert!(no_certificate.contains("key.pem: holds no certificate"), "{no_certificate}");
    let plain = text(&ml(&["show", "--url", &address]).stderr);
    assert!(plain.contains("this server speaks TLS: write https"), "{plain}");

    interrupt(&child);
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn a_server_does_not_start_with_half_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(folder.path());
    let refused = |arguments: &[&str]| {
        let output = ml(&[&["serve", "--port", "0", "--log", "off"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused(&["--tls-cert", &certificate]).contains("without --tls-key"));
    assert!(refused(&["--tls-key", &key]).contains("without --tls-cert"));
    let absent = refused(&["--tls-cert", &certificate, "--tls-key", "/nowhere/key.pem"]);
    assert!(absent.contains("/nowhere/key.pem: No such file or directory\n"), "{absent}");
    assert!(refused(&["--tls-cert", &key, "--tls-key", &key]).contains("holds no certificate"));
}

#[test]
fn bounds_of_batches_say_nothing_without_their_folder() {
    let output = ml(&["serve", "--port", "0", "--log", "off", "--max-batch-file", "1MiB"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("--max-batch-file says nothing without --batch-dir"), "{told}");
    let output = ml(&["serve", "--port", "0", "--log", "off", "--batch-dir", "/dev/null/a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/null/a: "), "{}", text(&output.stderr));
}
