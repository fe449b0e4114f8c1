//! Requests to the bucket, and what their outcomes mean.

use bucket::is_refusal;
use cluster_proto::{Answer, Operation, RECORD_BYTES_MAX, Request, Tag};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult, UpdateVersion};
use std::time::Duration;

/// Sends a request, for at most `limit`.
pub(crate) async fn perform(bucket: &dyn ObjectStore, request: Request, limit: Duration) -> Answer {
    let Request { object, operation, .. } = request;
    let path: Path = object.split('/').filter(|part| !part.is_empty()).collect();
    let answer = async {
        match operation {
            Operation::Read => read(bucket, &path).await,
            Operation::Create(bytes) => match write(bucket, &path, bytes, PutMode::Create).await {
                // A creation needs nothing but the bucket.
                Err(Error::NotFound { source, .. }) => Answer::Refused(format!("{NO_BUCKET}: {source}")),
                written => settled(written),
            },
            Operation::Replace(Tag { e_tag, version }, bytes) => {
                settled(write(bucket, &path, bytes, PutMode::Update(UpdateVersion { e_tag, version })).await)
            }
        }
    };
    let late = || Answer::Unknown(format!("no answer within {limit:?}"));
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| late())
}

/// Removes an object that has these contents, within twice `limit`. Returns false if it has others by now, and true if there is none.
/// The request to remove it has no condition, so what is written between the two requests is lost.
pub(crate) async fn remove(
    bucket: &dyn ObjectStore,
    object: &str,
    contents: &[u8],
    limit: Duration,
) -> Result<bool, String> {
    let path: Path = object.split('/').filter(|part| !part.is_empty()).collect();
    let removed = async {
        match read_record(bucket, &path).await? {
            None => Ok(true),
            Some(found) if found != contents => Ok(false),
            Some(_) => match bucket.delete(&path).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(true),
                Err(error) => Err(error),
            },
        }
    };
    let removed: Result<Result<bool, Error>, _> = tokio::time::timeout(limit * 2, removed).await;
    removed.map_err(|_| format!("no answer within {:?}", limit * 2))?.map_err(|error| error.to_string())
}

/// Returns the contents of an object that can be a record; `None` if there is no object, or it is too long.
///
/// # Errors
/// `NotFound` if there is no such bucket.
pub(crate) async fn read_record(bucket: &dyn ObjectStore, path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match bucket.get(path).await {
        Ok(found) if found.meta.size > RECORD_BYTES_MAX as u64 => Ok(None),
        Ok(found) => Ok(Some(found.bytes().await?.to_vec())),
        Err(Error::NotFound { source, .. }) if !is_without_bucket(&source.to_string()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error that an object was not found is not about the object.
fn is_without_bucket(why: &str) -> bool {
    why.contains("NoSuchBucket") || why.to_ascii_lowercase().contains("<html")
}

const NO_BUCKET: &str = "there is no such bucket, or something else answers at the endpoint";

/// Returns the answer for an error that an object was not found. A membership ends if its object is gone, so the bucket itself must have
/// said that of the object.
fn not_found(why: &str) -> Answer {
    if is_without_bucket(why) {
        return Answer::Refused(format!("{NO_BUCKET}: {why}"));
    }
    Answer::Missing
}

async fn read(bucket: &dyn ObjectStore, path: &Path) -> Answer {
    let found = match bucket.get(path).await {
        Ok(found) => found,
        Err(error @ Error::NotFound { .. }) => return not_found(&error.to_string()),
        Err(error) => return failed(&error),
    };
    let Some(tag) = tag(found.meta.e_tag.clone(), found.meta.version.clone()) else { return without_tag() };
    if found.meta.size > RECORD_BYTES_MAX as u64 {
        // It is refused for its length, whatever it contains.
        return Answer::Found(tag, vec![0; RECORD_BYTES_MAX + 1]);
    }
    match found.bytes().await {
        Ok(bytes) => Answer::Found(tag, bytes.to_vec()),
        Err(error) => failed(&error),
    }
}

async fn write(
    bucket: &dyn ObjectStore,
    path: &Path,
    bytes: Vec<u8>,
    mode: PutMode,
) -> Result<PutResult, Error> {
    let options = PutOptions { mode, ..PutOptions::default() };
    bucket.put_opts(path, bytes.into(), options).await
}

/// Returns what the outcome of a write means.
fn settled(written: Result<PutResult, Error>) -> Answer {
    match written {
        Ok(PutResult { e_tag, version, .. }) => tag(e_tag, version).map_or_else(without_tag, Answer::Written),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. }) => {
            Answer::Conflict
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> Answer {
    if is_refusal(error) { Answer::Refused(error.to_string()) } else { Answer::Unknown(error.to_string()) }
}

fn tag(e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
    e_tag.is_some().then_some(Tag { e_tag, version })
}

/// A write cannot be made conditional on an answer without an ETag.
fn without_tag() -> Answer {
    Answer::Unknown("the answer has no ETag".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bucket_says_that_an_object_is_gone() {
        let text = |body: &str| format!("Object at location nodes/a not found: 404 Not Found: {body}");
        for body in ["<Error><Code>NoSuchBucket</Code></Error>", "<HTML><body>no such site</body></HTML>"] {
            assert!(matches!(not_found(&text(body)), Answer::Refused(why) if why.starts_with(NO_BUCKET)));
        }
        for body in ["<Error><Code>NoSuchKey</Code></Error>", ""] {
            assert_eq!(not_found(&text(body)), Answer::Missing);
        }
    }
}
