//! Plain requests to the embedded API, past every fault: for users, the cluster's controllers and the observer.

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use quarry_apiserver::ApiService;
use serde_json::Value;
use tower::ServiceExt;

#[derive(Clone)]
pub struct AdminClient {
    service: ApiService,
}

/// A refusal: the code and the API's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refused {
    pub code: u16,
    pub message: String,
}

impl AdminClient {
    pub fn new(service: ApiService) -> Self {
        AdminClient { service }
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let content_type = if method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(Full::new(bytes));
        let request = request.map_err(|why| Refused { code: 0, message: why.to_string() })?;
        let response = match self.service.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let code = response.status().as_u16();
        let bytes = match response.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if code < 300 {
            return Ok(value);
        }
        Err(Refused { code, message: value["message"].as_str().unwrap_or_default().to_owned() })
    }

    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value, Refused> {
        self.call(Method::POST, collection, Some(object)).await
    }

    pub async fn patch(&self, path: &str, changes: &Value) -> Result<Value, Refused> {
        self.call(Method::PATCH, path, Some(changes)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Value, Refused> {
        self.call(Method::DELETE, path, None).await
    }
}
