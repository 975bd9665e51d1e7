//! Variables with which each rank on a host computes on an NVIDIA GPU of its own.

use std::env;
use std::fs;

/// The GPUs that a process may use, as CUDA reads them: numbers or names, a comma between two.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The network that NCCL greets other ranks over.
const INTERFACE: &str = "NCCL_SOCKET_IFNAME";
/// Says whether NCCL sums in the switch between GPUs.
const MULTICAST: &str = "NCCL_NVLS_ENABLE";
/// Says whether NCCL opens buffers of repeated steps to other ranks.
const REGISTER: &str = "NCCL_GRAPH_REGISTER";

/// Says whether NCCL prepares for sums inside and outside of repeated steps at once.
const MIXING: &str = "NCCL_GRAPH_MIXING_SUPPORT";

/// The GPUs of this host that its ranks have.
#[derive(Debug, PartialEq, Eq)]
pub enum Gpus {
    /// None, or nothing is known of them.
    None,
    /// Fewer than ranks: so many. All ranks compute on the CPU.
    TooFew(usize),
    /// One for each rank, in turn, as CUDA calls it.
    Each(Vec<String>),
}

impl Gpus {
    /// Those that this process sees, for `count` ranks.
    pub fn of_host(count: usize) -> Gpus {
        let visible = env::var(VISIBLE).ok();
        Gpus::of(count, visible.as_deref(), devices())
    }

    fn of(count: usize, visible: Option<&str>, devices: usize) -> Gpus {
        if devices == 0 {
            return Gpus::None;
        }
        let all: Vec<String> = match visible {
            Some(visible) => {
                let names = visible.split(',').map(str::trim);
                // CUDA takes what stands before the first that is none.
                let known = names.take_while(|name| !name.is_empty() && *name != "-1");
                known.map(str::to_owned).collect()
            }
            None => (0..devices).map(|number| number.to_string()).collect(),
        };
        match all.len() {
            0 => Gpus::None,
            some if some < count => Gpus::TooFew(some),
            _ => Gpus::Each(all.into_iter().take(count).collect()),
        }
    }

    /// Returns a note for who asked for `count` ranks, where these have too few GPUs.
    pub fn note(&self, count: usize) -> Option<String> {
        let Gpus::TooFew(some) = self else { return None };
        Some(format!(
            "{some} GPU for {count} ranks, of which each needs one: they compute on the CPU"
        ))
    }

    /// The variables of `rank`.
    pub fn variables(&self, rank: usize) -> Vec<(&'static str, String)> {
        let names = match self {
            Gpus::None => return Vec::new(),
            Gpus::TooFew(_) => return vec![(VISIBLE, String::new())],
            Gpus::Each(names) => names,
        };
        let Some(own) = names.get(rank) else { return Vec::new() };
        let mut variables = vec![(VISIBLE, own.clone())];
        // Multicast takes memory of the switch that other programs of a shared host may hold.
        // Buffers of MLX's cannot be let others into, and NCCL would look at them each time. All
        // sums of a rank are on one stream, one after the other.
        let own = [(MULTICAST, "0"), (REGISTER, "0"), (MIXING, "0"), (INTERFACE, "lo")];
        for (name, value) in own {
            if env::var_os(name).is_none() {
                variables.push((name, value.to_owned()));
            }
        }
        variables
    }
}

/// NVIDIA's GPUs of this host: the driver makes a file for each.
fn devices() -> usize {
    let Ok(files) = fs::read_dir("/dev") else { return 0 };
    let is_gpu = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
    };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter(|name| is_gpu(name)).count()
}

#[cfg(test)]
mod tests {
    use super::Gpus;

    #[test]
    fn each_rank_has_the_gpu_at_its_place_of_those_that_are_visible() {
        let each = |names: [&str; 2]| Gpus::Each(names.map(str::to_owned).to_vec());
        assert_eq!(Gpus::of(2, None, 0), Gpus::None);
        assert_eq!(Gpus::of(2, Some("0,1"), 0), Gpus::None);
        assert_eq!(Gpus::of(2, None, 1), Gpus::TooFew(1));
        assert_eq!(Gpus::of(2, None, 4), each(["0", "1"]));
        assert_eq!(Gpus::of(2, Some("3, GPU-12"), 4), each(["3", "GPU-12"]));
        assert_eq!(Gpus::of(2, Some("3"), 4), Gpus::TooFew(1));
        assert_eq!(Gpus::of(2, Some("2,-1,3"), 4), Gpus::TooFew(1));
        assert_eq!(Gpus::of(2, Some(""), 4), Gpus::None);
    }

    #[test]
    fn ranks_are_told_which_gpu_is_theirs() {
        let gpus = Gpus::of(2, None, 2);
        let variables = gpus.variables(1);
        assert!(variables.contains(&("CUDA_VISIBLE_DEVICES", "1".to_owned())), "{variables:?}");
        // Who has too few computes on CPUs in all ranks, and is told so.
        let gpus = Gpus::of(2, None, 1);
        assert_eq!(gpus.variables(0), [("CUDA_VISIBLE_DEVICES", String::new())]);
        assert!(gpus.note(2).is_some_and(|note| note.contains("1 GPU for 2 ranks")));
        assert_eq!(Gpus::None.note(2), None);
    }
}
