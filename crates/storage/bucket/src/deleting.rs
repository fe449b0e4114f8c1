//! Deletion of many objects, for wrappers of buckets.

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::Result;
use object_store::path::Path;
use std::future::Future;

/// Deletes objects one after the other with `delete`, as `ObjectStore::delete_stream` does. One that fails does not end the
/// others.
pub(crate) fn delete_each<D>(
    locations: BoxStream<'static, Result<Path>>,
    delete: impl Fn(Path) -> D + Send + 'static,
) -> BoxStream<'static, Result<Path>>
where
    D: Future<Output = Result<()>> + Send + 'static,
{
    let delete_one = move |location: Path| {
        let deleted = delete(location.clone());
        async move { deleted.await.map(|()| location) }
    };
    locations.and_then(delete_one).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use object_store::Error;
    use std::future::ready;

    #[test]
    fn each_object_has_its_own_result() {
        let names = stream::iter(["a", "b", "c"].map(|name| Ok(Path::from(name)))).boxed();
        let gone = || Error::NotFound { path: "b".into(), source: "404".into() };
        let delete = move |name: Path| ready(if name.as_ref() == "b" { Err(gone()) } else { Ok(()) });
        let deleted = delete_each(names, delete);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let deleted: Vec<_> = runtime.block_on(deleted.map(Result::ok).collect());
        assert_eq!(deleted, [Some(Path::from("a")), None, Some(Path::from("c"))]);
    }
}
