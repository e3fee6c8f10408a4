//! Owns query strings: parses `?limit=10&labelSelector=...` to typed options, with kube-apiserver's
//! errors.

use super::path::percent_decode;
use crate::engine::{
    DeleteOptions, FieldValidation, ListOptions, Propagation, WatchFrom, WriteOptions,
};
use crate::present::Include;
use crate::select::{FieldSelector, LabelSelector};
use crate::status::{ApiError, FieldError, Named, Problem, Shown};
use serde_json::{Value, json};

#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

/// Options of a watch.
#[derive(Debug)]
pub struct WatchOptions {
    pub from: WatchFrom,
    pub bookmarks: bool,
    /// Ends the initial events with an annotated bookmark.
    pub initial_events: bool,
    pub timeout_seconds: Option<u64>,
}

impl Query {
    pub fn parse(text: &str) -> Self {
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn get(&self, key: &str) -> &str {
        self.all(key).next().unwrap_or_default()
    }

    fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1" | "True" | "TRUE" | "t" | "T")
    }

    pub fn is_watch(&self) -> bool {
        self.flag("watch")
    }

    pub fn include(&self) -> Include {
        match self.get("includeObject") {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }

    fn version(&self) -> Result<Option<u64>, ApiError> {
        match self.get("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
                ))
            }),
        }
    }

    pub fn list(&self) -> Result<ListOptions, ApiError> {
        let mut options = ListOptions {
            labels: LabelSelector::parse(self.get("labelSelector"))?,
            fields: FieldSelector::parse(self.get("fieldSelector"))?,
            limit: self.get("limit").parse().unwrap_or_default(),
            continue_token: self.get("continue").to_owned(),
            ..ListOptions::default()
        };
        let version = self.version()?;
        let matching = self.get("resourceVersionMatch");
        let mut errors = Vec::new();
        if !matching.is_empty() && version.is_none() && !self.is_watch() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if !matches!(matching, "" | "Exact" | "NotOlderThan") {
            errors.push(unsupported(
                "resourceVersionMatch",
                matching,
                &["Exact", "NotOlderThan", ""],
            ));
        }
        if self.flag("sendInitialEvents") && matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        refuse("ListOptions", &errors)?;
        match (matching, version) {
            ("Exact", Some(version)) => options.exact = Some(version),
            (_, Some(version)) if options.continue_token.is_empty() => options.at_least = version,
            _ => {}
        }
        Ok(options)
    }

    pub fn watch(&self) -> Result<WatchOptions, ApiError> {
        let initial_events = self.flag("sendInitialEvents");
        let from = match self.version()? {
            None | Some(0) => WatchFrom::Now,
            Some(_) if initial_events => WatchFrom::Now,
            Some(version) => WatchFrom::After(version),
        };
        Ok(WatchOptions {
            from,
            bookmarks: self.flag("allowWatchBookmarks"),
            initial_events,
            timeout_seconds: self.get("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0),
        })
    }

    pub fn write(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let mut errors = Vec::new();
        let dry_run = self.dry_run(&mut errors);
        let validation = match self.get("fieldValidation") {
            "Strict" => FieldValidation::Strict,
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            other => {
                errors.push(unsupported(
                    "fieldValidation",
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        refuse(kind, &errors)?;
        Ok(WriteOptions { dry_run, validation })
    }

    fn dry_run(&self, errors: &mut Vec<FieldError>) -> bool {
        let values: Vec<&str> = self.all("dryRun").collect();
        if values.iter().any(|value| *value != "All") {
            let shown = Shown::Json(json!(values));
            errors
                .push(FieldError::new("dryRun", Problem::NotSupported(shown, vec!["All".into()])));
        }
        !values.is_empty()
    }

    /// From the query, and from the body if there is one.
    pub fn delete(&self, body: &Value) -> Result<DeleteOptions, ApiError> {
        let mut errors = Vec::new();
        let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            return Err(ApiError::bad_request(format!(
                "the body of a delete request must be DeleteOptions, not {kind}"
            )));
        }
        let mut dry_run = self.dry_run(&mut errors);
        dry_run |=
            body["dryRun"].as_array().is_some_and(|list| list.iter().any(|value| value == "All"));
        let policy = match body["propagationPolicy"].as_str() {
            Some(policy) => policy,
            None => self.get("propagationPolicy"),
        };
        let orphan = body["orphanDependents"].as_bool();
        let propagation = match (policy, orphan) {
            ("", None) => None,
            ("", Some(true)) | ("Orphan", _) => Some(Propagation::Orphan),
            ("", Some(false)) | ("Background", _) => Some(Propagation::Background),
            ("Foreground", _) => Some(Propagation::Foreground),
            (other, _) => {
                errors.push(unsupported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        refuse("DeleteOptions", &errors)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(DeleteOptions {
            dry_run,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            propagation,
            grace_seconds: body["gracePeriodSeconds"]
                .as_i64()
                .or(self.get("gracePeriodSeconds").parse().ok()),
        })
    }
}

fn unsupported(field: &str, value: &str, allowed: &[&str]) -> FieldError {
    let allowed = allowed.iter().map(|value| (*value).into()).collect();
    FieldError::new(field, Problem::NotSupported(Shown::Json(value.into()), allowed))
}

fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&Named { group: "meta.k8s.io", resource: "", kind }, "", errors))
}
