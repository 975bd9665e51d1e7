//! `ml rm`: models out of the hub's cache.

use hub::{Cache, Settings};

use crate::args::RmArgs;
use crate::bytes;
use crate::failure::Result;
use crate::names;
use crate::nearest::explained;
use crate::output::print_line;

/// Removes the models that `args` name, one after the other.
///
/// # Errors
/// The first name that is none, that is not in the cache, or that cannot be removed.
pub fn run(args: &RmArgs) -> Result<()> {
    let cache = Cache::new(&Settings::from_env()?.cache);
    let names = args.models.iter().map(|text| names::parse(text)).collect::<Result<Vec<_>>>()?;
    for name in names {
        let freed = cache.remove(&name).map_err(|error| explained(error, &name))?;
        print_line(format_args!("removed {name}: {}", bytes::human(freed)))?;
    }
    Ok(())
}
