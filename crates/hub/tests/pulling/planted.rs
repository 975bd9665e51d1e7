//! Files that others plant in a cache they may write to: links, pipes, and files without an end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use fake_hub::{git_sha1, sha256};

use crate::{NAME, Place, name};

fn pipe(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_link_in_the_place_of_a_beginning_is_not_written_through() {
    let place = Place::new();
    let blobs = place.folder().join("blobs");
    fs::create_dir_all(&blobs).unwrap();
    let victim = place.cache.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let begun = blobs.join(format!("{}.incomplete", sha256(&place.weights)));
    let plants: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
        [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
    for plant in plants {
        plant(&victim, &begun).unwrap();
        let error = place.refused(NAME);
        assert!(error.contains("incomplete: it is a") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::remove_file(&begun).unwrap();
    }
    place.pull(NAME).unwrap();
    place.assert_whole();
}

#[test]
fn pipes_are_refused_and_not_waited_for() {
    let hash = |place: &Place| sha256(&place.weights);
    let locks = ".locks/models--org--model";
    for (planted, told) in [
        (format!("models--org--model/blobs/{}.incomplete", hash(&Place::new())), true),
        (format!("{locks}/{}.lock", hash(&Place::new())), true),
        // A blob is replaced, and what a branch means is written anew.
        (format!("models--org--model/blobs/{}", git_sha1(b"{}")), false),
        ("models--org--model/refs/main".to_owned(), false),
    ] {
        let place = Place::new();
        let planted = place.cache.path().join(planted);
        pipe(&planted);
        assert!(place.cache().find(&name(NAME)).is_err());
        place.cache().models().unwrap();
        match place.pull(NAME) {
            Ok(_) => place.assert_whole(),
            Err(error) => {
                let error = error.to_string();
                assert!(told && error.contains("no regular file: remove it"), "{error}");
            }
        }
    }
    let place = Place::new();
    place.pull(NAME).unwrap();
    let lock = place.cache.path().join(locks).join("planted.lock");
    pipe(&lock);
    let error = place.cache().remove(&name(NAME)).unwrap_err().to_string();
    assert!(error.contains("planted.lock: it is no regular file"), "{error}");
}

#[test]
fn an_index_that_is_no_file_or_has_no_end_is_not_read() {
    let place = Place::new();
    let folder = place.pull(NAME).unwrap().folder;
    let index = folder.join("model.safetensors.index.json");
    pipe(&index);
    let listed = place.cache().models().unwrap().remove(0);
    assert_eq!(listed.missing, ["model.safetensors.index.json"]);
    fs::remove_file(&index).unwrap();
    symlink("/dev/zero", &index).unwrap();
    assert!(place.cache().find(&name(NAME)).is_err());
    fs::remove_file(&index).unwrap();
    let sparse = fs::File::create(&index).unwrap();
    sparse.set_len(1 << 40).unwrap();
    place.cache().find(&name(NAME)).unwrap();
}
