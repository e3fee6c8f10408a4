//! How a view reads the API: one request at a time, each with the name of the attempt.
//!
//! The caller implements `Reader`: it owns the connection, the time limit per request and what an error means to its
//! user. Never does: retry, write.

use kube::Client;

/// An API that views are read from.
pub trait Reader {
    type Error;

    fn client(&self) -> Client;

    /// One request. `attempt` says what was tried: `listing volumes`.
    fn call<T: Send>(
        &self,
        attempt: &str,
        request: impl Future<Output = kube::Result<T>> + Send,
    ) -> impl Future<Output = Result<T, Self::Error>> + Send;
}

/// `None` for an object that does not exist; a kind that does not exist stays an error. Both are 404, and only the
/// first has a status that names an object.
pub async fn optional<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<Option<T>> {
    match request.await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status))
            if status.code == 404
                && status.reason == "NotFound"
                && status.details.as_ref().is_some_and(|details| !details.name.is_empty()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
