//! Several processes that compute the demo model together.

mod ends;
mod features;
mod held;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value as Json, json};

use crate::serve::{request, send, serve, wait_until_ready};
use crate::{FOX, PATIENCE, command, finish, first_bytes, generated, interrupt, ml, ml_with_stdin};
use crate::{signal, text};

/// Arguments that ranks need on a machine with a GPU.
const ON_CPU: [&str; 2] = ["--backend", "cpu"];

fn launch<'a>(count: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["launch", "-n", count, "--"], arguments, &ON_CPU].concat()
}

#[test]
fn ranks_answer_as_one_process_does() {
    let arguments = ["generate", FOX, "-n", "40", "-t", "0", "--dtype", "f32"];
    let alone = generated(&[&arguments[..], &ON_CPU].concat());
    for count in ["2", "3"] {
        assert_eq!(generated(&launch(count, &arguments)), alone, "{count} ranks");
        let pipeline = [&arguments[..], &["--pipeline"]].concat();
        assert_eq!(generated(&launch(count, &pipeline)), alone, "{count} ranks, in a pipeline");
    }
    let piped = ["generate", "-n", "40", "-t", "0", "--dtype", "f32"];
    let output = ml_with_stdin(&launch("2", &piped), FOX.as_bytes());
    assert_eq!(text(&output.stdout), alone, "{}", text(&output.stderr));
}

#[test]
fn chats_and_classifications_of_ranks_are_those_of_one() {
    let classify =
        ["classify", "--labels", "positive,negative, fox", "A film", "bad", "--dtype", "f32"];
    let chat = ["chat", "--quiet", "-n", "20", "-t", "0", "--dtype", "f32"];
    let turns = "Hello\nTell me a story about a fox\n".as_bytes();
    for arguments in [&classify[..], &chat] {
        let alone = ml_with_stdin(&[arguments, &ON_CPU].concat(), turns);
        assert!(alone.status.success() && !alone.stdout.is_empty());
        for split in [&[][..], &["--pipeline"]] {
            let arguments = [arguments, split].concat();
            let together = ml_with_stdin(&launch("2", &arguments), turns);
            let told = text(&together.stderr);
            assert!(together.status.success(), "{arguments:?}: {told}");
            assert_eq!(text(&together.stdout), text(&alone.stdout), "{arguments:?}");
        }
    }
}

#[test]
fn one_rank_prints() {
    let arguments = launch("3", &["generate", FOX, "-n", "60", "-t", "1.2", "--json"]);
    let output = ml(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

#[test]
fn what_fails_in_all_ranks_ends_them_at_once() {
    let started = Instant::now();
    let output = ml(&launch("2", &["generate", FOX, "--model", "/nowhere"]));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("error: ") && told.contains("/nowhere"), "{told}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_several_ranks_cannot_do_is_refused() {
    for (arguments, name) in
        [(&["inspect", "a"][..], "inspect"), (&["serve", "--models-dir", "/nowhere"], "one model")]
    {
        let output = ml(&launch("2", arguments));
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("several ranks") && told.contains(name), "{told}");
    }
    for (arguments, reason) in [
        (&["launch", "-n", "2"][..], "nothing to run"),
        (&["launch", "-n", "1", "--", "generate"], "from 2 to 64"),
        (&["launch", "-n", "2", "claude"], "cannot be used with"),
        (&["launch"], "name an agent"),
        (&["generate", FOX, "--pipeline"], "ml launch -n 2"),
    ] {
        let output = ml(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
}

/// The processes of a group, started one by one as `mlx.launch` does.
fn by_hand(count: usize, arguments: &[&str]) -> (tempfile::TempDir, Vec<Child>) {
    by_hand_each(count, |_| arguments.to_vec())
}

fn by_hand_each<'a>(
    count: usize,
    arguments: impl Fn(usize) -> Vec<&'a str>,
) -> (tempfile::TempDir, Vec<Child>) {
    let folder = tempfile::tempdir().unwrap();
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let hosts: Vec<[String; 1]> =
        listeners.iter().map(|one| [one.local_addr().unwrap().to_string()]).collect();
    drop(listeners);
    let file = folder.path().join("hosts.json");
    fs::write(&file, serde_json::to_string(&hosts).unwrap()).unwrap();
    let start = |rank: usize| {
        let mut command = command(&[&arguments(rank)[..], &ON_CPU].concat());
        command.env("MLX_RANK", rank.to_string()).env("MLX_HOSTFILE", &file).spawn().unwrap()
    };
    let ranks = (0..count).map(start).collect();
    (folder, ranks)
}

#[test]
fn ranks_that_others_start_find_each_other() {
    let arguments = ["generate", FOX, "-n", "10", "-t", "0", "--dtype", "f32"];
    let alone = generated(&[&arguments[..], &ON_CPU].concat());
    let (_folder, ranks) = by_hand(2, &arguments);
    let said: Vec<_> = ranks.into_iter().map(finish).collect();
    assert_eq!(said[0].1, alone, "{said:?}");
    // Of several, the first one speaks.
    assert_eq!((said[1].0, said[1].1.as_str(), said[1].2.as_str()), (Some(0), "", ""));
    let output = command(&arguments).env("MLX_RANK", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("MLX_HOSTFILE"), "{}", text(&output.stderr));
}

#[test]
fn a_rank_that_is_killed_ends_the_others_with_an_error() {
    let arguments = ["generate", FOX, "-n", "100000", "--ignore-eos"];
    let (_folder, mut ranks) = by_hand(3, &arguments);
    first_bytes(&mut ranks[0]);
    let started = Instant::now();
    signal(&ranks[2], "-KILL");
    let ends: Vec<_> = ranks.into_iter().map(finish).collect();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for (rank, (code, _, told)) in ends[..2].iter().enumerate() {
        assert_eq!(*code, Some(1), "rank {rank}: {told}");
        assert!(told.contains("is lost"), "rank {rank}: {told}");
    }
}

#[test]
fn a_rank_that_cannot_load_is_named_with_its_reason() {
    let (_folder, ranks) = by_hand_each(2, |rank| match rank {
        0 => vec!["generate", FOX],
        _ => vec!["generate", FOX, "--memory-limit", "1KiB"],
    });
    let ends: Vec<_> = ranks.into_iter().map(finish).collect();
    assert_eq!((ends[0].0, ends[1].0), (Some(1), Some(1)), "{ends:?}");
    assert!(ends[1].2.contains("loading the weights"), "{ends:?}");
    assert!(ends[0].2.contains("rank 1 has ended: loading the weights"), "{ends:?}");
}

#[test]
fn ranks_with_other_options_do_not_begin() {
    let (_folder, ranks) = by_hand_each(2, |rank| match rank {
        0 => vec!["generate", FOX],
        _ => vec!["generate", FOX, "--kv-bits", "8"],
    });
    for (code, _, told) in ranks.into_iter().map(finish) {
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("other model files or options"), "{told}");
    }
}

/// An adapter in mlx-lm's layout: of one module, whose first factor begins with `first`.
fn adapter(scale: f32, first: f32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "fine_tune_type": "lora", "num_layers": 1,
        "lora_parameters": {"rank": 1, "scale": scale},
    });
    fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
    let bytes: Vec<u8> = [first, 1.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let view = |shape: [usize; 2]| TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
    let module = "model.layers.0.self_attn.q_proj";
    let factors =
        [(format!("{module}.lora_a"), view([2, 1])), (format!("{module}.lora_b"), view([1, 2]))];
    let file = folder.path().join("adapters.safetensors");
    fs::write(file, safetensors::serialize(factors, None).unwrap()).unwrap();
    folder
}

#[test]
fn ranks_with_other_adapters_do_not_begin() {
    let own = adapter(2.0, 3.0);
    for (other, is_told) in
        [(adapter(2.5, 3.0), true), (adapter(2.0, 4.0), true), (adapter(2.0, 3.0), false)]
    {
        let folders = [&own, &other].map(|folder| folder.path().to_str().unwrap());
        let (_folder, ranks) =
            by_hand_each(2, |rank| vec!["generate", FOX, "--adapter", folders[rank]]);
        for (code, _, told) in ranks.into_iter().map(finish) {
            // Those that are equal do not fit the model.
            assert_eq!(code, Some(1), "{told}");
            assert_eq!(told.contains("other model files or options"), is_told, "{told}");
        }
    }
}

#[test]
fn the_rank_with_the_least_memory_decides_what_begins() {
    let prompt = "fox ".repeat(700);
    let arguments = ["generate", "-n", "1000", "--ignore-eos", "--dtype", "f32", &prompt];
    let (_folder, ranks) = by_hand_each(2, |rank| match rank {
        0 => arguments.to_vec(),
        _ => [&arguments[..], &["--memory-limit", "6MiB"]].concat(),
    });
    let ends: Vec<_> = ranks.into_iter().map(finish).collect();
    assert_eq!((ends[0].0, ends[1].0), (Some(1), Some(0)), "{ends:?}");
    assert!(ends[0].2.contains("a prompt of") && ends[0].2.contains("MiB free"), "{ends:?}");
}

/// A server of so many ranks, and its address.
fn served(count: usize) -> (tempfile::TempDir, Vec<Child>, String) {
    served_with(count, &[])
}

fn served_with(count: usize, options: &[&str]) -> (tempfile::TempDir, Vec<Child>, String) {
    let arguments = ["serve", "--port", "0", "--log", "off", "--quiet", "--dtype", "f32"];
    let (folder, mut ranks) = by_hand(count, &[&arguments[..], options].concat());
    let mut line = String::new();
    let stderr = ranks[0].stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}"));
    wait_until_ready(address);
    (folder, ranks, address.to_owned())
}

fn completion(address: &str, body: &Json) -> String {
    let answer = request(address, "POST", "/v1/completions", &body.to_string());
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()
}

/// Of many kinds: greedy, drawn, with penalties, with stop strings, with log probabilities.
fn asked(number: usize) -> Json {
    let words = ["fox", "bear", "owl"].map(|word| word.repeat(1 + number % 9)).join(" and ");
    let mut body = json!({
        "prompt": format!("Tell me a story about {words}"), "max_tokens": 3 + number * 7 % 30,
        "temperature": if number.is_multiple_of(3) { 0.0 } else { 1.0 }, "seed": number,
        // Of ids that are hardly ever drawn, the last bit of a sum may decide.
        "top_p": 0.95,
    });
    match number % 4 {
        0 => body["logprobs"] = json!(2),
        1 => body["repetition_penalty"] = json!(1.2),
        2 => body["stop"] = json!(["the"]),
        _ => {}
    }
    if number % 8 == 4 {
        // The prompt's log probabilities are read between others' steps.
        body["echo"] = true.into();
    }
    body
}

/// The texts of two hundred requests, 16 at a time, every fourth of which is left by its client.
fn texts_of_many(address: &str) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let texts = Mutex::new(vec![String::new(); 200]);
    let client = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= 200 {
                return;
            }
            let mut body = asked(number);
            if number % 4 == 3 {
                body["stream"] = true.into();
                body["ignore_eos"] = true.into();
                body["max_tokens"] = 3000.into();
                let stream = send(address, "POST", "/v1/completions", &body.to_string());
                thread::sleep(Duration::from_millis(number as u64 % 30));
                drop(stream);
                continue;
            }
            let answer: Json = serde_json::from_str(&completion(address, &body)).unwrap();
            let text = answer["choices"][0]["text"].as_str();
            let text = text.unwrap_or_else(|| panic!("{number}: {answer}")).to_owned();
            texts.lock().unwrap()[number] = text;
        }
    };
    thread::scope(|scope| (0..16).for_each(|_| drop(scope.spawn(client))));
    texts.into_inner().unwrap()
}

fn wait_until_idle(address: &str) {
    let started = Instant::now();
    while !request(address, "GET", "/health", "").contains("\"running\":0,\"waiting\":0") {
        assert!(started.elapsed() < PATIENCE, "something runs on");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_of_ranks_answers_many_at_once_as_one_process_does() {
    answers_many(2, &[]);
}

#[test]
fn a_server_of_a_pipeline_answers_many_at_once_as_one_process_does() {
    answers_many(3, &["--pipeline"]);
}

fn answers_many(count: usize, options: &[&str]) {
    let (one, address) = serve(&["--dtype", "f32", "--backend", "cpu"]);
    wait_until_ready(&address);
    let alone = texts_of_many(&address);
    interrupt(&one);
    let (_folder, ranks, address) = served_with(count, options);
    let together = texts_of_many(&address);
    let differs = |number: &usize| together[*number] != alone[*number];
    let differing: Vec<_> = (0..together.len()).filter(differs).collect();
    let told = |at: &usize| (*at, &together[*at], &alone[*at]);
    let told: Vec<_> = differing.iter().map(told).collect();
    assert!(told.is_empty(), "{told:?}");
    // Clients that left have freed all ranks.
    wait_until_idle(&address);
    // A rank that is slow for a while is waited for.
    let slow = asked(5);
    signal(&ranks[1], "-STOP");
    let waits = thread::spawn({
        let address = address.clone();
        move || completion(&address, &slow)
    });
    thread::sleep(Duration::from_secs(1));
    signal(&ranks[1], "-CONT");
    assert!(waits.join().unwrap().contains("\"text\""));
    // The signal that ends the first rank ends all.
    ranks.iter().for_each(interrupt);
    for (rank, (code, _, told)) in ranks.into_iter().map(finish).enumerate() {
        assert_eq!((code, told.as_str()), (Some(0), ""), "rank {rank}");
    }
    assert_eq!(finish(one).0, Some(0));
}

/// Asserts what clients see of a server of which a rank is gone.
fn tells_that_it_is_unhealthy(address: &str) {
    let started = Instant::now();
    let health = loop {
        let health = request(address, "GET", "/health", "");
        if health.contains("unhealthy") {
            break health;
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{health}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("rank 2 is lost"), "{health}");
    let refused = request(address, "POST", "/v1/completions", "{\"prompt\": \"a\"}");
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("rank 2 is lost"), "{refused}");
}

#[test]
fn a_server_that_loses_a_rank_says_so() {
    loses_a_rank(&[]);
}

#[test]
fn a_server_of_a_pipeline_that_loses_a_rank_says_so() {
    loses_a_rank(&["--pipeline"]);
}

fn loses_a_rank(options: &[&str]) {
    // Idle, in a prompt, while it answers.
    let long = "fox and bear ".repeat(150);
    for prompt in [None, Some(&long[..]), Some("Tell me a story")] {
        let (_folder, mut ranks, address) = served_with(3, options);
        let stream = prompt.map(|prompt| {
            let body = json!({
                "prompt": prompt, "stream": true, "ignore_eos": true, "max_tokens": 400,
            });
            send(&address, "POST", "/v1/completions", &body.to_string())
        });
        if let (Some(mut stream), "Tell me a story") = (stream.as_ref(), prompt.unwrap_or("")) {
            stream.read_exact(&mut [0; 400]).unwrap();
        }
        ranks[2].kill().unwrap();
        tells_that_it_is_unhealthy(&address);
        if let Some(mut stream) = stream {
            let mut told = String::new();
            stream.read_to_string(&mut told).unwrap();
            assert!(told.contains("rank 2 is lost"), "{told}");
        }
        interrupt(&ranks[0]);
        let ends: Vec<_> = ranks.into_iter().map(finish).collect();
        assert_eq!(ends[0].0, Some(0), "{ends:?}");
        assert_eq!(ends[1].0, Some(1), "{ends:?}");
        assert!(ends[1].2.contains("rank 2 is lost"), "{ends:?}");
    }
}

#[test]
fn who_ends_the_launcher_ends_all_ranks() {
    let arguments = ["generate", FOX, "-n", "100000", "--ignore-eos"];
    let mut child = command(&launch("2", &arguments)).spawn().unwrap();
    first_bytes(&mut child);
    let started = Instant::now();
    // A terminal sends Ctrl-C to all; a program that ends the launcher says so to it alone.
    signal(&child, "-TERM");
    let (code, _, _) = finish(child);
    assert!(code != Some(0) && started.elapsed() < Duration::from_secs(12), "{code:?}");
    thread::sleep(Duration::from_millis(100));
}

#[test]
fn links_between_ranks_are_measured() {
    let measured = ml(&["launch", "-n", "3", "--", "doctor", "--links", "--json"]);
    let told = text(&measured.stderr);
    assert!(measured.status.success(), "{told}");
    let report: Json = serde_json::from_str(&text(&measured.stdout)).unwrap();
    let links = report["links"].as_array().unwrap();
    let pairs: Vec<_> =
        links.iter().map(|link| (link["from"].clone(), link["to"].clone())).collect();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 2)].map(|(from, to)| (json!(from), json!(to))));
    for link in links {
        let latency = link["latency_microseconds"].as_f64().unwrap();
        assert!(latency > 1.0 && latency < 1e6, "{link}");
        assert!(link["bytes_per_second"].as_f64() > Some(1e6), "{link}");
    }
    let alone = ml(&["doctor", "--links"]);
    assert_eq!(alone.status.code(), Some(2));
    assert!(text(&alone.stderr).contains("ml launch -n 2 -- doctor --links"));
}

#[test]
fn ranks_are_measured_by_one_word() {
    let sizes = ["-p", "16", "-n", "4", "-r", "1", "--quiet"];
    for split in [&[][..], &["--pipeline"]] {
        let measured = ml(&[&["bench", "--ranks", "2"][..], split, &sizes, &ON_CPU].concat());
        let told = text(&measured.stderr);
        assert!(measured.status.success(), "{told}");
        let said = text(&measured.stdout);
        assert_eq!((said.matches("pp16").count(), said.matches("tg4").count()), (1, 1), "{said}");
    }
    let refused = ml(&["bench", "--ranks", "2", "--url", "http://127.0.0.1:1"]);
    assert_eq!(refused.status.code(), Some(2));
    let refused = ml(&launch("2", &["bench", "--ranks", "2"]));
    assert!(text(&refused.stderr).contains("one of several already"));
}
