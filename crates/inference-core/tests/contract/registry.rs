//! The registry: names, preference, errors, threads.

use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};

use fake_model::{FakeBackend, FakeModel};
use inference_core::{Backend, Error, LoadOptions, Preference, Registry, Result, TextModel};

fn registry(backends: impl IntoIterator<Item = Arc<FakeBackend>>) -> Registry {
    let registry = Registry::new();
    for backend in backends {
        registry.register(backend).unwrap();
    }
    registry
}

fn named(backend: &str) -> LoadOptions {
    LoadOptions { backend: Some(backend.to_owned()), ..Default::default() }
}

#[test]
fn a_registered_backend_is_found_by_its_name_and_no_other() {
    let registry = registry([FakeBackend::available("cpu")]);
    assert_eq!(registry.get("cpu").unwrap().name(), "cpu");
    assert!(registry.get("CPU").is_none());
    assert!(registry.get("").is_none());
}

#[test]
fn names_are_listed_sorted_whatever_the_order_of_registration() {
    let registry = registry(["metal", "cpu", "zeta", "cuda"].map(FakeBackend::available));
    assert_eq!(registry.list(), ["cpu", "cuda", "metal", "zeta"]);
}

#[test]
fn a_second_backend_of_the_same_name_is_refused_and_the_first_stays() {
    let registry = registry([FakeBackend::available("cpu")]);
    let error = registry.register(FakeBackend::unavailable("cpu", "second")).unwrap_err();
    assert_eq!(error, Error::BackendAlreadyRegistered { name: "cpu".into() });
    assert_eq!(registry.get("cpu").unwrap().available(), Ok(()));
    assert_eq!(registry.list(), ["cpu"]);
}

/// A backend that can run, of that preference.
fn preferred(name: &'static str, preference: Preference) -> Arc<FakeBackend> {
    let mut backend = FakeBackend::new(name, || FakeModel::echo(name));
    backend.preference = preference;
    Arc::new(backend)
}

#[test]
fn the_default_is_the_first_of_the_preference_order_then_by_name() {
    use Preference::{Accelerator, Cpu, Other, Portable};
    // Registered in the reverse of the order that counts; each is taken away in turn.
    let order = [
        ("cuda", Accelerator),
        ("metal", Accelerator),
        ("rocm", Accelerator),
        ("llama_cpp", Portable),
        ("cpu", Cpu),
        ("aaa", Other),
        ("zzz", Other),
    ];
    for first in 0..order.len() {
        let backends = order[first..].iter().rev().map(|(name, rank)| preferred(name, *rank));
        assert_eq!(registry(backends).default_backend().unwrap().name(), order[first].0);
    }
}

#[test]
fn a_backend_that_states_no_preference_comes_after_those_that_do() {
    assert_eq!(FakeBackend::available("metal").preference(), Preference::Other);
    let registry = registry([FakeBackend::available("aaa"), preferred("cpu", Preference::Cpu)]);
    assert_eq!(registry.default_backend().unwrap().name(), "cpu");
}

#[test]
fn an_unavailable_backend_is_passed_over() {
    let registry = registry([
        FakeBackend::unavailable("metal", "not macOS"),
        FakeBackend::unavailable("cuda", "no driver"),
        FakeBackend::available("other"),
    ]);
    assert_eq!(registry.default_backend().unwrap().name(), "other");
}

#[test]
fn an_empty_registry_and_one_without_an_available_backend_fail_differently() {
    assert_eq!(Registry::new().default_backend().unwrap_err(), Error::NoBackends);
    let registry = registry([
        FakeBackend::unavailable("metal", "not macOS"),
        FakeBackend::unavailable("cuda", "no driver"),
    ]);
    let unavailable =
        vec![("cuda".into(), "no driver".into()), ("metal".into(), "not macOS".into())];
    assert_eq!(
        registry.default_backend().unwrap_err(),
        Error::NoBackendAvailable { unavailable },
        "sorted by name"
    );
}

#[test]
fn a_model_is_loaded_by_the_named_backend_else_by_the_default_one() {
    let metal = preferred("metal", Preference::Accelerator);
    let registry = registry([FakeBackend::available("cpu"), metal]);
    let path = Path::new("model");
    assert_eq!(registry.load_model(path, &named("cpu")).unwrap().model_type(), "cpu");
    let default = registry.load_model(path, &LoadOptions::default()).unwrap();
    assert_eq!(default.model_type(), "metal");
}

#[test]
fn loading_with_an_unknown_backend_lists_the_known_ones() {
    let registry = registry(["metal", "cpu"].map(FakeBackend::available));
    assert_eq!(
        registry.load_model(Path::new("model"), &named("gpu")).unwrap_err(),
        Error::BackendNotRegistered {
            name: "gpu".into(),
            registered: vec!["cpu".into(), "metal".into()]
        }
    );
}

#[test]
fn loading_with_a_named_backend_that_cannot_run_gives_its_reason_and_tries_no_other() {
    let registry =
        registry([FakeBackend::unavailable("metal", "not macOS"), FakeBackend::available("cpu")]);
    assert_eq!(
        registry.load_model(Path::new("model"), &named("metal")).unwrap_err(),
        Error::BackendNotAvailable { name: "metal".into(), reason: "not macOS".into() }
    );
}

#[test]
fn loading_passes_the_backends_own_error_on() {
    let registry = registry([FakeBackend::available("cpu")]);
    assert_eq!(
        registry.load_model(Path::new("broken"), &LoadOptions::default()).unwrap_err(),
        Error::Load { path: "broken".into(), reason: "no config.json".into() }
    );
}

#[test]
fn a_bad_load_option_is_refused_before_any_backend_is_asked() {
    let options = LoadOptions { prefill_chunk: Some(0), ..Default::default() };
    let error = Registry::new().load_model(Path::new("model"), &options).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "prefill_chunk", .. }), "{error}");
}

#[test]
fn many_threads_register_list_and_load_at_once() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let registry = Registry::new();
    let start = Barrier::new(NAMES.len() * 2);
    let refused: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = [NAMES, NAMES]
            .concat()
            .into_iter()
            .map(|name| {
                let (registry, start) = (&registry, &start);
                scope.spawn(move || {
                    start.wait();
                    let refused = registry.register(FakeBackend::available(name)).is_err();
                    let listed = registry.list();
                    assert!(listed.is_sorted() && listed.contains(&name.to_owned()));
                    let model = registry.load_model(Path::new("model"), &named(name)).unwrap();
                    assert_eq!(model.model_type(), name);
                    registry.default_backend().unwrap();
                    usize::from(refused)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(registry.list(), NAMES);
    assert_eq!(refused, NAMES.len(), "each name was registered twice, once with success");
}

/// Uses the registry that it is registered in from every one of its calls.
struct Reentrant(&'static Registry);

impl Backend for Reentrant {
    fn name(&self) -> &str {
        self.0.list();
        "metal"
    }

    /// The first one, so that the default goes through it.
    fn preference(&self) -> Preference {
        self.0.list();
        Preference::Accelerator
    }

    fn available(&self) -> Result<(), String> {
        // A write while the registry walks its backends; refused from the second time on.
        let _ = self.0.register(FakeBackend::unavailable("late", "made for the test"));
        Ok(())
    }

    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        assert_eq!(self.0.list(), ["late", "metal", "plain"]);
        let other = LoadOptions { backend: Some("plain".into()), ..options.clone() };
        self.0.load_model(path, &other)
    }
}

#[test]
fn a_backend_that_calls_back_into_the_registry_does_not_deadlock() {
    static REGISTRY: Registry = Registry::new();
    REGISTRY.register(FakeBackend::available("plain")).unwrap();
    REGISTRY.register(Arc::new(Reentrant(&REGISTRY))).unwrap();
    let model = REGISTRY.load_model(Path::new("model"), &named("metal")).unwrap();
    assert_eq!(model.model_type(), "plain");
    assert_eq!(REGISTRY.default_backend().unwrap().name(), "metal");
}

struct Panicking;

impl Backend for Panicking {
    fn name(&self) -> &str {
        "panicking"
    }

    fn available(&self) -> Result<(), String> {
        panic!("on purpose")
    }

    fn load_model(&self, _: &Path, _: &LoadOptions) -> Result<Box<dyn TextModel>> {
        Ok(Box::new(FakeModel::echo("panicking")))
    }
}

#[test]
fn a_backend_that_panics_leaves_the_registry_usable() {
    let registry = registry([]);
    registry.register(Arc::new(Panicking)).unwrap();
    let panicked = std::thread::scope(|scope| {
        scope.spawn(|| registry.default_backend().map(|_| ())).join().is_err()
    });
    assert!(panicked);
    registry.register(preferred("cpu", Preference::Cpu)).unwrap();
    assert_eq!(registry.default_backend().unwrap().name(), "cpu");
}

/// The one test on the process's registry: no other test may touch it.
#[test]
fn the_functions_of_the_crate_use_the_global_registry() {
    assert_eq!(inference_core::default_backend().unwrap_err(), Error::NoBackends);
    inference_core::register(FakeBackend::available("cpu")).unwrap();
    assert_eq!(inference_core::backends(), ["cpu"]);
    assert_eq!(inference_core::get_backend("cpu").unwrap().name(), "cpu");
    assert_eq!(inference_core::default_backend().unwrap().name(), "cpu");
    let model = inference_core::load_model(Path::new("m"), &LoadOptions::default()).unwrap();
    assert_eq!(model.model_type(), "cpu");
    assert_eq!(inference_core::global().list(), ["cpu"]);
}

#[test]
fn results_that_hold_a_backend_or_a_model_can_be_printed() {
    let registry = registry([FakeBackend::available("cpu")]);
    assert_eq!(format!("{registry:?}"), r#"Registry(["cpu"])"#);
    assert!(format!("{:?}", registry.get("cpu")).contains(r#"name: "cpu""#));
    let model = registry.load_model(Path::new("m"), &LoadOptions::default());
    assert!(format!("{model:?}").contains(r#"architecture: "cpu""#));
}

#[test]
fn a_name_is_looked_up_where_nothing_is_at_the_path() {
    let registry = registry([FakeBackend::available("cpu")]);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    registry.resolve_by(move |name| {
        log.lock().unwrap().push(name.to_owned());
        match name {
            "known" => Ok(Some("broken".into())),
            "gone" => Err("`gone` is not in the cache".into()),
            _ => Ok(None),
        }
    });
    let load = |path: &Path| registry.load_model(path, &LoadOptions::default()).map(|_| ());
    load(here).unwrap();
    // The backend gets the path that was found.
    let broken = load(Path::new("broken")).unwrap_err();
    assert_eq!(load(Path::new("known")), Err(broken));
    load(Path::new("other")).unwrap();
    let error = load(Path::new("gone")).unwrap_err();
    assert_eq!(error.to_string(), "gone: `gone` is not in the cache");
    // What is there needs no look-up.
    assert_eq!(*asked.lock().unwrap(), ["broken", "known", "other", "gone"]);
}
