//! Owns URLs: parses a path to the resource it names. Never reads the body.

use crate::kind::{Registry, ResourceId};
use crate::status::ApiError;
use serde_json::json;

#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    Health,
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    Group(String),
    Resources {
        group: String,
        version: String,
    },
    OpenApiIndex,
    OpenApi {
        group: String,
        version: String,
    },
    /// A path under a group and version.
    Objects(Target),
    /// A list that `kubectl describe` requests for a kind that is not served: always empty.
    Nothing {
        kind: &'static str,
        version: &'static str,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    pub resource: ResourceId,
    pub namespace: String,
    pub name: String,
    pub status: bool,
}

pub fn route(registry: &Registry, path: &str) -> Result<Route, ApiError> {
    let parts: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(Route::Health),
        ["version"] => Ok(Route::Version),
        ["api"] => Ok(Route::CoreVersions),
        ["apis"] => Ok(Route::Groups),
        ["apis", group] => Ok(Route::Group((*group).into())),
        ["api", version] => {
            Ok(Route::Resources { group: String::new(), version: (*version).into() })
        }
        ["apis", group, version] => {
            Ok(Route::Resources { group: (*group).into(), version: (*version).into() })
        }
        ["openapi", "v3"] => Ok(Route::OpenApiIndex),
        ["openapi", "v3", "api", version] => {
            Ok(Route::OpenApi { group: String::new(), version: (*version).into() })
        }
        ["openapi", "v3", "apis", group, version] => {
            Ok(Route::OpenApi { group: (*group).into(), version: (*version).into() })
        }
        ["api", version, rest @ ..] => objects(registry, "", version, rest),
        ["apis", group, version, rest @ ..] => objects(registry, group, version, rest),
        _ => Err(unknown(&format!("the path {path} is not served"))),
    }
}

fn objects(
    registry: &Registry,
    group: &str,
    version: &str,
    rest: &[&str],
) -> Result<Route, ApiError> {
    // The path of a Namespace looks like the prefix of the objects in it.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, inner @ ..] if !matches!(inner, [] | ["status" | "finalize"]) => {
            (*namespace, inner)
        }
        _ => ("", rest),
    };
    let (plural, name, sub) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, sub] => (*plural, *name, *sub),
        _ => return Err(unknown("the path is too long")),
    };
    let Some(resource) = registry.find(group, version, plural) else {
        if let (true, "v1", "pods", "") = (group.is_empty(), version, plural, name) {
            return Ok(Route::Nothing { kind: "PodList", version: "v1" });
        }
        let what = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        return Err(unknown(&format!(
            "{what} in version {version} are not served by Quarry's embedded API"
        )));
    };
    let found = registry.get(resource);
    if found.namespaced && namespace.is_empty() && !name.is_empty() {
        return Err(unknown(&format!("{plural} are namespaced; add the namespace to the path")));
    }
    if !found.namespaced && !namespace.is_empty() {
        return Err(unknown(&format!("{plural} are cluster-scoped")));
    }
    let status = match sub {
        "" => false,
        "status" => true,
        other => {
            return Err(unknown(&format!("the subresource {other} of {plural} is not served")));
        }
    };
    Ok(Route::Objects(Target { resource, namespace: namespace.into(), name: name.into(), status }))
}

/// 404 in kube-apiserver's wording, with what is missing.
pub fn unknown(what: &str) -> ApiError {
    ApiError::new(
        404,
        "NotFound",
        format!("the server could not find the requested resource: {what}"),
    )
    .with_details(json!({}))
}

pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
