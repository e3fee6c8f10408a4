//! Owns the rules for names, labels and annotation keys, in kube-apiserver's wording.

use crate::status::FieldError;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// Maximum length of an object name.
const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const ANNOTATIONS_MAX: usize = 256 * 1024;

pub fn subdomain(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        problems.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !name.split('.').all(is_label) {
        problems.push(SUBDOMAIN.to_owned());
    }
    problems
}

pub fn label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if name.len() > LABEL_MAX {
        problems.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !is_label(name) {
        problems.push(LABEL.to_owned());
    }
    problems
}

fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| plain(c) || c == '-')
        && text.starts_with(plain)
        && text.ends_with(plain)
}

fn is_name_part(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty()
        && text.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'))
        && text.starts_with(plain)
        && text.ends_with(plain)
}

/// A label key, annotation key or finalizer: `[prefix/]name`.
pub fn qualified_name(key: &str) -> Result<(), String> {
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                return Err("prefix part must be non-empty".into());
            }
            if let Some(problem) = subdomain(prefix).into_iter().next() {
                return Err(format!("prefix part {problem}"));
            }
            name
        }
        _ => return Err(QUALIFIED.to_owned()),
    };
    if name.is_empty() {
        return Err("name part must be non-empty".into());
    }
    if name.len() > LABEL_MAX {
        return Err(format!("name part must be no more than {LABEL_MAX} characters"));
    }
    if is_name_part(name) { Ok(()) } else { Err(NAME_PART.into()) }
}

pub fn label_value(value: &str) -> Result<(), String> {
    if value.len() > LABEL_MAX {
        return Err(format!("must be no more than {LABEL_MAX} characters"));
    }
    if value.is_empty() || is_name_part(value) { Ok(()) } else { Err(LABEL_VALUE.into()) }
}

/// Validates labels, annotations, finalizers and owner references in an object's metadata.
pub fn validate_metadata(metadata: &serde_json::Value, errors: &mut Vec<FieldError>) {
    use crate::status::Problem;
    let empty = serde_json::Map::new();
    let labels = metadata["labels"].as_object().unwrap_or(&empty);
    for (key, value) in labels {
        if let Err(why) = qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", key.as_str(), why));
        }
        let value = value.as_str().unwrap_or_default();
        if let Err(why) = label_value(value) {
            errors.push(FieldError::invalid("metadata.labels", value, why));
        }
    }
    let annotations = metadata["annotations"].as_object().unwrap_or(&empty);
    let mut size = 0;
    for (key, value) in annotations {
        if let Err(why) = qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", key.as_str(), why));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::new("metadata.annotations", Problem::TooLong(ANNOTATIONS_MAX)));
    }
    for finalizer in metadata["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let finalizer = finalizer.as_str().unwrap_or_default();
        if let Err(why) = qualified_name(finalizer) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, why));
        }
    }
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    for owner in owners {
        for (field, what) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    "",
                    what,
                ));
            }
        }
    }
    let controllers: Vec<&str> = owners
        .iter()
        .filter(|owner| owner["controller"] == true)
        .map(|owner| owner["name"].as_str().unwrap_or_default())
        .collect();
    if controllers.len() > 1 {
        let why =
            "Only one reference can have Controller set to true. Found \"true\" in references for "
                .to_owned()
                + &controllers.join(" and ");
        errors.push(FieldError::invalid("metadata.ownerReferences", owners.to_vec(), why));
    }
}
