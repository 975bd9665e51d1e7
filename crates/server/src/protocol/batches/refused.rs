//! Errors of the store in words for clients.

use std::sync::Arc;

use crate::batches::store::{Refused, Store};
use crate::error::{ApiError, Result};
use crate::run::state::{State, blocking};

/// The folder with files and batches.
///
/// # Errors
/// 403 where the server has none.
pub fn store(state: &State) -> Result<Arc<Store>> {
    state.batches.clone().ok_or_else(ApiError::no_batches)
}

/// The result of `work` on the store, which may wait for the disk.
///
/// # Errors
/// Those of the work, about `id`.
pub async fn stored<T: Send + 'static>(
    store: &Arc<Store>,
    id: &str,
    work: impl FnOnce(&Store) -> Result<T, Refused> + Send + 'static,
) -> Result<T> {
    let (store, id) = (Arc::clone(store), id.to_owned());
    blocking(move || work(&store).map_err(|error| error_of(&store, &id, error))).await
}

/// `refused`, about the file or the batch `id`.
pub fn error_of(store: &Store, id: &str, refused: Refused) -> ApiError {
    let bounds = store.bounds();
    match refused {
        Refused::Ending => ApiError::draining(),
        Refused::Absent => ApiError::not_stored(id),
        Refused::FileTooLong => {
            let most = bounds.file_bytes;
            ApiError::no_room(format!("a file has {most} bytes at most (--max-batch-file)"))
        }
        Refused::Full => {
            let most = bounds.bytes;
            ApiError::no_room(format!(
                "all files and batches take {most} bytes at most (--max-batch-bytes): delete some that are done"
            ))
        }
        Refused::TooMany(what) => ApiError::no_room(format!(
            "there are as many {what} as may be: delete some that are done"
        )),
        Refused::InUse(batch) if batch == id => {
            ApiError::bad_request(format!("`{id}` is not over yet: cancel it before"))
        }
        Refused::InUse(batch) => ApiError::bad_request(format!(
            "the batch `{batch}` still reads `{id}`: cancel it before"
        )),
        Refused::Disk(error) => {
            tracing::error!(target: "batches", %error, "the folder of --batch-dir fails");
            ApiError::internal(format!("the folder of --batch-dir fails: {error}"))
        }
    }
}
