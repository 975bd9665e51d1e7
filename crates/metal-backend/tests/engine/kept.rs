//! Prefixes on disk: the next load goes on from them, and what is wrong with files is told and
//! changes nothing.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use inference_core::{CacheMiss, GenerateMetrics, LoadOptions, Prompt, TextModel};
use tempfile::TempDir;

use crate::alike::prompt;
use crate::drawn;
use crate::tiny::Checkpoint;

/// Keeps prefixes in `folder`.
fn kept(folder: &Path) -> LoadOptions {
    LoadOptions {
        prefix_cache: Some(8 << 20),
        prefix_cache_dir: Some(folder.join("prefixes")),
        ..Default::default()
    }
}

fn run(model: &dyn TextModel, prompt: &[u32]) -> (Vec<u32>, GenerateMetrics) {
    let mut generation = model.generate(&Prompt::Ids(prompt.to_vec()), &drawn(20, 7)).unwrap();
    let found = generation.by_ref().map(|token| token.unwrap().id).collect();
    (found, generation.outcome().unwrap().metrics.clone())
}

/// Loads, asks and closes: the tokens, how many ids were known, why not more, and what users are
/// told.
fn asked(
    checkpoint: &Checkpoint,
    options: &LoadOptions,
    prompt: &[u32],
) -> (Vec<u32>, usize, Option<CacheMiss>, Vec<String>) {
    let model = checkpoint.load(options).unwrap();
    let (tokens, metrics) = run(&*model, prompt);
    model.close();
    (tokens, metrics.cached_prompt_tokens, metrics.cache_miss, model.notices())
}

/// All files below `folder` but what is known of the weights.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(self::files(&path)) } else { files.push(path) }
    }
    files.retain(|path| !path.ends_with("weights.digests"));
    files.sort();
    files
}

fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[test]
fn the_next_load_goes_on_from_prompts_of_the_last_one_with_the_same_tokens() {
    let packed = LoadOptions { kv_bits: Some(8), prefill_chunk: Some(64), ..Default::default() };
    let kinds: [(Checkpoint, LoadOptions); 6] = [
        (Checkpoint::qwen3(), LoadOptions::default()),
        (Checkpoint::with_heads(32, 2, 64, 64), packed),
        (Checkpoint::hybrid(4), LoadOptions::default()),
        (Checkpoint::convolutions(4), LoadOptions::default()),
        (Checkpoint::falcon_h1(4), LoadOptions::default()),
        (Checkpoint::latent(2), LoadOptions::default()),
    ];
    for (at, (checkpoint, options)) in kinds.into_iter().enumerate() {
        let home = TempDir::new().unwrap();
        let LoadOptions { prefix_cache, prefix_cache_dir, .. } = kept(home.path());
        let keeps = LoadOptions { prefix_cache, prefix_cache_dir, ..options.clone() };
        let ids = prompt(3, 200);
        let (expected, cached, miss, notices) = asked(&checkpoint, &keeps, &ids);
        assert_eq!((cached, miss, notices), (0, Some(CacheMiss::Empty), vec![]), "{at}");
        let written = files(home.path());
        assert!(!written.is_empty(), "{at}");
        let again = asked(&checkpoint, &keeps, &ids);
        assert_eq!(again, (expected.clone(), 192, None, vec![]), "{at}");
        assert_eq!(files(home.path()), written, "{at}: what is there is not written again");
        let (alone, ..) = asked(&checkpoint, &options, &ids);
        assert_eq!(alone, expected, "{at}");
    }
}

#[test]
fn what_is_kept_is_on_disk_before_the_model_is_closed() {
    let home = TempDir::new().unwrap();
    let model = Checkpoint::qwen3().load(&kept(home.path())).unwrap();
    let is_written =
        || files(home.path()).iter().any(|path| path.to_str().unwrap().ends_with(".prefix"));
    // Another thread writes. The same prompt again gives it time, and nothing more to write.
    let is_written_after_a_request = |_| {
        run(&*model, &prompt(3, 200));
        is_written()
    };
    assert!((0..500).any(is_written_after_a_request), "nothing was written");
}

#[test]
fn conversations_share_files_and_go_on() {
    let home = TempDir::new().unwrap();
    let checkpoint = Checkpoint::qwen3();
    let options = kept(home.path());
    let first = prompt(3, 200);
    let (answer, ..) = asked(&checkpoint, &options, &first);
    let second = [first, answer, prompt(5, 150)].concat();
    let (tokens, cached, miss, _) = asked(&checkpoint, &options, &second);
    assert_eq!((cached, miss), (192, Some(CacheMiss::Ends)));
    let (again, cached, miss, _) = asked(&checkpoint, &options, &second);
    assert_eq!((again, cached, miss), (tokens, 320, None));
}

#[test]
fn another_model_adapter_or_packing_has_files_of_its_own() {
    let home = TempDir::new().unwrap();
    let ids = prompt(3, 200);
    let options = kept(home.path());
    asked(&Checkpoint::qwen3(), &options, &ids);
    let cached = |checkpoint: &Checkpoint, options: &LoadOptions| {
        let (_, cached, miss, _) = asked(checkpoint, options, &ids);
        (cached, miss)
    };
    let none = (0, Some(CacheMiss::Empty));
    assert_eq!(cached(&Checkpoint::hybrid(4), &options), none);
    let theta = Checkpoint::qwen3().config("rope_theta", serde_json::json!(5000.0));
    assert_eq!(cached(&theta, &options), none);
    let chunks = LoadOptions { prefill_chunk: Some(32), ..options.clone() };
    assert_eq!(cached(&Checkpoint::qwen3(), &chunks), none);
    assert_eq!(cached(&Checkpoint::qwen3(), &options), (192, None));
}

#[test]
fn a_model_of_which_any_value_was_trained_further_has_files_of_its_own() {
    let home = TempDir::new().unwrap();
    let ids = prompt(3, 200);
    let options = kept(home.path());
    let first = Checkpoint::with_sizes(2, 64, 128);
    let (expected, ..) = asked(&first, &options, &ids);
    let mut tensors: Vec<&String> = first.tensors.keys().collect();
    tensors.sort();
    for name in tensors {
        let mut trained = first.clone();
        let tensor = trained.tensors.get_mut(name).unwrap();
        // One value, in the middle.
        let at = tensor.data.len() / 8 * 4;
        tensor.data[at + 2] ^= 0x40;
        let (found, cached, miss, _) = asked(&trained, &options, &ids);
        assert_eq!((cached, miss), (0, Some(CacheMiss::Empty)), "{name}");
        let (alone, ..) = asked(&trained, &LoadOptions::default(), &ids);
        assert_eq!(found, alone, "{name}");
    }
    let (again, cached, ..) = asked(&first, &options, &ids);
    assert_eq!((again, cached), (expected, 192));
}

#[test]
fn damaged_files_are_named_and_left_aside() {
    let home = TempDir::new().unwrap();
    let (checkpoint, options, ids) = (Checkpoint::qwen3(), kept(home.path()), prompt(3, 200));
    let (expected, ..) = asked(&checkpoint, &options, &ids);
    let [file] = &files(home.path())[..] else { panic!("{:?}", files(home.path())) };
    let whole = fs::read(file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [
        &whole[..whole.len() / 2],
        &flipped,
        b"",
        b"mlprefx1 and then another thing that is longer",
    ] {
        fs::write(file, damaged).unwrap();
        let (tokens, cached, _, notices) = asked(&checkpoint, &options, &ids);
        assert_eq!((tokens, cached), (expected.clone(), 0));
        let [notice] = &notices[..] else { panic!("{notices:?}") };
        assert!(notice.contains(file.to_str().unwrap()) && notice.contains("damaged"), "{notice}");
        fs::write(file, &whole).unwrap();
    }
    // One that was never whole has another name, and is not read.
    fs::rename(file, file.with_extension("prefix.1.partial")).unwrap();
    let (tokens, cached, _, notices) = asked(&checkpoint, &options, &ids);
    assert_eq!((tokens, cached, notices), (expected, 0, vec![]));
}

#[test]
fn files_of_all_models_fit_the_budget() {
    let home = TempDir::new().unwrap();
    let options = kept(home.path());
    asked(&Checkpoint::hybrid(4), &options, &prompt(1, 200));
    let model = Checkpoint::qwen3().load(&options).unwrap();
    for salt in 0..6 {
        run(&*model, &prompt(salt, 200));
    }
    drop(model);
    let (all, budget) = (bytes(home.path()), bytes(home.path()) / 2);
    let less = LoadOptions { prefix_cache_disk: Some(budget), ..options };
    // The prompt that was used last is there still.
    let (_, cached, ..) = asked(&Checkpoint::qwen3(), &less, &prompt(5, 200));
    assert_eq!(cached, 192);
    assert!((1..=budget).contains(&bytes(home.path())), "{} of {all}", bytes(home.path()));
    let none = LoadOptions { prefix_cache_disk: Some(0), ..less };
    let (_, cached, ..) = asked(&Checkpoint::qwen3(), &none, &prompt(5, 200));
    assert_eq!((cached, bytes(home.path())), (0, 0));
}

/// Lets a file look as if it had been written so many seconds ago.
fn age(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn files_that_are_not_of_prefixes_stay_whatever_the_budget_is() {
    let home = TempDir::new().unwrap();
    let options = kept(home.path());
    asked(&Checkpoint::qwen3(), &options, &prompt(3, 200));
    let [own] = &files(home.path())[..] else { panic!("{:?}", files(home.path())) };
    let (root, model) = (home.path().join("prefixes"), own.parent().unwrap());
    let (digest, whole) = ("0123456789abcdef".repeat(2), own.file_name().unwrap());
    let whole = whole.to_str().unwrap();
    let foreign = [
        root.join("x.partial"),
        root.join("x.prefix"),
        root.join(whole),
        root.join("films").join("x.partial"),
        root.join("films").join(whole),
        root.join(&digest[1..]).join(whole),
        root.join(digest.to_uppercase()).join(whole),
        root.join(&digest).join("x.prefix"),
        root.join(&digest).join("deeper").join(whole),
        model.join("x.partial"),
        model.join("x.prefix"),
        model.join(format!("{whole}.1.2.partial")),
        model.join(".x.prefix.1.2.partial"),
        model.join(format!(".{whole}.partial")),
        home.path().join("elsewhere").join(whole),
    ];
    for path in &foreign {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "another program's").unwrap();
        age(path, 3600);
    }
    symlink(home.path().join("elsewhere"), root.join("0".repeat(32))).unwrap();
    let [stale, fresh] = [1, 2].map(|count| model.join(format!(".{whole}.1.{count}.partial")));
    for path in [&stale, &fresh] {
        fs::write(path, "").unwrap();
    }
    age(&stale, 3600);
    let none = LoadOptions { prefix_cache_disk: Some(0), ..options };
    let (_, cached, _, notices) = asked(&Checkpoint::qwen3(), &none, &prompt(3, 200));
    assert_eq!((cached, notices), (0, vec![]));
    for path in &foreign {
        assert!(path.exists(), "{}", path.display());
    }
    assert!(!own.exists() && !stale.exists() && fresh.exists());
}

#[test]
fn what_follows_a_prefix_is_removed_before_it_and_does_not_stay_without_it() {
    let home = TempDir::new().unwrap();
    let (checkpoint, options) = (Checkpoint::qwen3(), kept(home.path()));
    let size = |path: &Path| path.metadata().unwrap().len();
    // A beginning, and two prompts that go on from it, one of them twice.
    let (begin, mut chain) = (prompt(3, 200), Vec::new());
    let long = [&begin[..192], &prompt(5, 160)].concat();
    let longer = [&long[..320], &prompt(6, 160)].concat();
    let other = [&begin[..128], &prompt(7, 160)].concat();
    for ids in [&begin, &long, &longer, &other] {
        asked(&checkpoint, &options, ids);
        let new = files(home.path()).into_iter().filter(|path| !chain.contains(path));
        let [new] = &new.collect::<Vec<_>>()[..] else { panic!("not one file more") };
        chain.push(new.clone());
    }
    // They were written in this order, and the last one was used the last.
    let aged = |files: &[PathBuf]| {
        files.iter().zip([4000, 3000, 2000, 1000]).for_each(|(path, seconds)| age(path, seconds));
    };
    aged(&chain);
    // Of what memory has no room for, the beginning is read first.
    let few = size(&chain[0]) + size(&chain[3]);
    let small = LoadOptions { prefix_cache: Some(few), ..options.clone() };
    let model = checkpoint.load(&small).unwrap();
    assert_eq!(run(&*model, &other).1.cached_prompt_tokens, 256);
    model.close();
    // A load that computes nothing removes what is too much.
    let trimmed = |budget| {
        let options = LoadOptions { prefix_cache_disk: Some(budget), ..options.clone() };
        checkpoint.load(&options).unwrap().close();
        chain.iter().map(|path| path.exists()).collect::<Vec<_>>()
    };
    aged(&chain);
    assert_eq!(trimmed(bytes(home.path())), [true; 4]);
    aged(&chain);
    assert_eq!(trimmed(bytes(home.path()) - 1), [true, true, false, true]);
    let left = [0, 1, 3].map(|at: usize| chain[at].clone());
    aged(&left);
    assert_eq!(trimmed(bytes(home.path()) - 1), [true, false, false, true]);
    // What nothing can go on to goes first, though it was used the last.
    asked(&checkpoint, &options, &prompt(8, 200));
    let known = |path: &PathBuf| chain.contains(path);
    let alone = files(home.path()).into_iter().find(|path| !known(path)).unwrap();
    fs::remove_file(&chain[0]).unwrap();
    age(&alone, 5000);
    assert_eq!(trimmed(bytes(home.path()) - 1), [false; 4]);
    assert!(alone.exists());
    let (_, cached, ..) = asked(&checkpoint, &options, &prompt(8, 200));
    assert_eq!(cached, 192);
}

#[test]
fn two_loads_of_a_model_in_a_process_write_beside_each_other() {
    let home = TempDir::new().unwrap();
    let (checkpoint, options) = (Checkpoint::qwen3(), kept(home.path()));
    let models = [(); 2].map(|()| checkpoint.load(&options).unwrap());
    for salt in 0..6 {
        std::thread::scope(|scope| {
            for model in &models {
                scope.spawn(move || run(&**model, &prompt(salt, 200)));
            }
        });
    }
    for model in models {
        model.close();
        assert_eq!(model.notices(), Vec::<String>::new());
    }
    let model = checkpoint.load(&options).unwrap();
    for salt in 0..6 {
        assert_eq!(run(&*model, &prompt(salt, 200)).1.cached_prompt_tokens, 192);
    }
    assert_eq!(model.notices(), Vec::<String>::new());
}

#[test]
fn without_a_budget_what_lies_there_is_not_too_much() {
    let home = TempDir::new().unwrap();
    let (checkpoint, options) = (Checkpoint::qwen3(), kept(home.path()));
    asked(&checkpoint, &options, &prompt(3, 200));
    // Another model's file, of which nothing but its size is on the disk.
    let name = "0123456789abcdef".repeat(2);
    let other = home.path().join("prefixes").join(&name);
    fs::create_dir(&other).unwrap();
    let large = other.join(format!("{name}.prefix"));
    File::create(&large).unwrap().set_len(9 << 30).unwrap();
    let (_, cached, ..) = asked(&checkpoint, &options, &prompt(3, 200));
    assert!(large.exists());
    assert_eq!(cached, 192);
    let less = LoadOptions { prefix_cache_disk: Some(8 << 30), ..options };
    let (_, cached, ..) = asked(&checkpoint, &less, &prompt(3, 200));
    assert!(!large.exists());
    assert_eq!(cached, 192);
}

#[test]
fn folders_that_cannot_be_used_are_refused_by_name() {
    let home = TempDir::new().unwrap();
    let refused = |options: &LoadOptions| {
        Checkpoint::qwen3().load(options).expect_err("it is refused").to_string()
    };
    let options = kept(home.path());
    asked(&Checkpoint::qwen3(), &options, &prompt(3, 100));
    let folder = home.path().join("prefixes");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let reason = refused(&options);
    assert!(reason.contains(folder.to_str().unwrap()) && reason.contains("chmod"), "{reason}");
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "a file").unwrap();
    assert!(refused(&options).contains(folder.to_str().unwrap()));
    let none = LoadOptions { prefix_cache: None, ..options };
    assert!(refused(&none).contains("prefix_cache_dir"));
    let lone = LoadOptions { prefix_cache_disk: Some(1), ..Default::default() };
    assert!(refused(&lone).contains("prefix_cache_disk"));
}
