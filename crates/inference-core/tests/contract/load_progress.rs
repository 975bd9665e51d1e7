//! How far a load is, as programs see it.

use inference_core::{LoadOptions, LoadProgress, WeightsRead};

#[test]
fn clones_see_what_a_load_has_read_and_never_more_than_all() {
    let progress = LoadProgress::new();
    let seen = progress.clone();
    // What comes before the weights are known is none of them.
    progress.reached(5);
    assert_eq!(seen.weights(), None);
    progress.begin(400);
    assert_eq!(seen.weights(), Some(WeightsRead { read: 0, total: 400 }));
    for (reached, read, percent) in [(99, 99, 24), (50, 99, 24), (300, 300, 75), (900, 400, 100)] {
        progress.reached(reached);
        let weights = seen.weights().expect("the load has begun");
        assert_eq!((weights.read, weights.total, weights.percent()), (read, 400, percent));
    }
    progress.begin(0);
    assert_eq!(seen.weights().map(|weights| weights.percent()), Some(100));
}

#[test]
fn options_are_equal_where_they_tell_the_same_progress() {
    let progress = LoadProgress::new();
    let telling = |progress: &LoadProgress| LoadOptions {
        progress: Some(progress.clone()),
        ..LoadOptions::default()
    };
    assert_eq!(telling(&progress), telling(&progress));
    assert_ne!(telling(&progress), telling(&LoadProgress::new()));
    assert_ne!(telling(&progress), LoadOptions::default());
}
