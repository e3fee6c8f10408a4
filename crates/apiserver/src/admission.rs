//! Owns ValidatingAdmissionPolicies: compiled once with their bindings, evaluated for every write.
//! Rules across objects use `paramKind`; the caller looks up the parameters. Never changes an
//! object. Not supported: `authorizer`, and a namespaceSelector or objectSelector in the match
//! constraints.

use crate::status::{ApiError, Named, resource_details};
use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ParamRef, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map as CelMap};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// A write to evaluate.
pub struct Review<'a> {
    pub operation: Operation,
    pub named: Named<'a>,
    pub version: &'a str,
    /// `volumes` or `volumes/status`.
    pub resource: String,
    pub namespace: &'a str,
    pub name: &'a str,
    pub dry_run: bool,
    pub object: Option<&'a Value>,
    pub old: Option<&'a Value>,
    pub namespace_object: Option<&'a Value>,
}

/// Finds the objects a policy uses as `params`, from its kind, the binding's reference and the
/// namespace of the write.
pub type Lookup<'a> = &'a dyn Fn(&str, &str, &ParamRef, &str) -> Vec<Arc<Value>>;

struct Policy {
    name: String,
    binding: String,
    rules: Vec<NamedRuleWithOperations>,
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    param_kind: Option<(String, String)>,
    param_ref: Option<ParamRef>,
    fails_closed: bool,
    denies: bool,
    warns: bool,
}

struct Validation {
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    reason: Option<String>,
}

struct Expression {
    text: String,
    program: Result<Program, String>,
}

impl Expression {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            program: Program::compile(text).map_err(|why| why.to_string()),
        }
    }

    fn run(&self, context: &Context<'_>) -> Result<Cel, String> {
        match &self.program {
            Ok(program) => program.execute(context).map_err(|why| why.to_string()),
            Err(why) => Err(format!("compilation failed: {why}")),
        }
    }
}

enum Verdict {
    Holds,
    Fails { message: String, reason: Option<String> },
    Broken(String),
}

#[derive(Default)]
pub struct Policies(Vec<Policy>);

impl Policies {
    pub fn new(policies: &[(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding)]) -> Self {
        Self(policies.iter().map(|(policy, binding)| compile(policy, binding)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The warnings to return with the response, or the refusal.
    pub fn judge(&self, review: &Review<'_>, lookup: Lookup<'_>) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        let mut denials: Vec<(String, Option<String>)> = Vec::new();
        for policy in self.0.iter().filter(|policy| policy.matches(review)) {
            for verdict in policy.verdicts(review, lookup) {
                let (message, reason) = match verdict {
                    Verdict::Holds => continue,
                    Verdict::Fails { message, reason } => (message, reason),
                    Verdict::Broken(why) if policy.fails_closed => (why, None),
                    Verdict::Broken(_) => continue,
                };
                let about = format!(
                    "ValidatingAdmissionPolicy '{}' with binding '{}'",
                    policy.name, policy.binding
                );
                if policy.warns {
                    let warning = format!("Validation failed for {about}: {message}");
                    // As kube-apiserver: one text is given once.
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
                if policy.denies {
                    denials.push((format!("{about} denied request: {message}"), reason));
                }
            }
        }
        match denials.first() {
            None => Ok(warnings),
            Some((message, reason)) => Err(denial(review, message, reason.as_deref())),
        }
    }
}

fn denial(review: &Review<'_>, message: &str, reason: Option<&str>) -> ApiError {
    let (code, reason) = match reason {
        Some("Unauthorized") => (401, "Unauthorized"),
        Some("Forbidden") => (403, "Forbidden"),
        Some("RequestEntityTooLarge") => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    let sentence = format!(
        "{} \"{}\" is forbidden: {message}",
        review.named.qualified_resource(),
        review.name
    );
    let mut details = resource_details(&review.named, review.name);
    details["causes"] = json!([{"message": message}]);
    ApiError::new(code, reason, sentence).with_details(details)
}

fn compile(
    policy: &ValidatingAdmissionPolicy,
    binding: &ValidatingAdmissionPolicyBinding,
) -> Policy {
    let spec = policy.spec.clone().unwrap_or_default();
    let bound = binding.spec.clone().unwrap_or_default();
    let actions = bound.validation_actions.unwrap_or_default();
    let constraints = spec.match_constraints.unwrap_or_default();
    Policy {
        name: policy.metadata.name.clone().unwrap_or_default(),
        binding: binding.metadata.name.clone().unwrap_or_default(),
        rules: constraints.resource_rules.unwrap_or_default(),
        conditions: spec
            .match_conditions
            .iter()
            .flatten()
            .map(|c| Expression::new(&c.expression))
            .collect(),
        variables: spec
            .variables
            .iter()
            .flatten()
            .map(|variable| (variable.name.clone(), Expression::new(&variable.expression)))
            .collect(),
        validations: spec
            .validations
            .iter()
            .flatten()
            .map(|validation| Validation {
                expression: Expression::new(&validation.expression),
                message: validation.message.clone(),
                message_expression: validation.message_expression.as_deref().map(Expression::new),
                reason: validation.reason.clone(),
            })
            .collect(),
        param_kind: spec
            .param_kind
            .map(|kind| (kind.api_version.unwrap_or_default(), kind.kind.unwrap_or_default())),
        param_ref: bound.param_ref,
        fails_closed: spec.failure_policy.as_deref() != Some("Ignore"),
        denies: actions.iter().any(|action| action == "Deny"),
        warns: actions.iter().any(|action| action == "Warn"),
    }
}

impl Policy {
    fn matches(&self, review: &Review<'_>) -> bool {
        let any = |list: &Option<Vec<String>>, wanted: &str| {
            list.iter().flatten().any(|known| known == "*" || known == wanted)
        };
        self.rules.iter().any(|rule| {
            any(&rule.operations, review.operation.name())
                && any(&rule.api_groups, review.named.group)
                && any(&rule.api_versions, review.version)
                && rule
                    .resources
                    .iter()
                    .flatten()
                    .any(|known| resource_matches(known, &review.resource))
                && rule.resource_names.as_ref().is_none_or(|names| {
                    names.is_empty() || names.iter().any(|name| name == review.name)
                })
        })
    }

    fn verdicts(&self, review: &Review<'_>, lookup: Lookup<'_>) -> Vec<Verdict> {
        let base = Context::default().with_all();
        let mut context = base.new_inner_scope();
        let or_null = |value: Option<&Value>| value.map_or(Cel::Null, to_cel);
        context.add_variable_from_value("object", or_null(review.object));
        context.add_variable_from_value("oldObject", or_null(review.old));
        context.add_variable_from_value("namespaceObject", or_null(review.namespace_object));
        context.add_variable_from_value("request", to_cel(&request(review)));
        for condition in &self.conditions {
            match condition.run(&context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Vec::new(),
                Err(why) => {
                    return vec![Verdict::Broken(format!(
                        "match condition '{}': {why}",
                        condition.text
                    ))];
                }
            }
        }
        let Some((api_version, kind)) = &self.param_kind else {
            return self.validate(&context);
        };
        let reference = self.param_ref.clone().unwrap_or_default();
        let params = lookup(api_version, kind, &reference, review.namespace);
        if params.is_empty() {
            return match reference.parameter_not_found_action.as_deref() {
                Some("Allow") => Vec::new(),
                _ => vec![Verdict::Broken("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".into())],
            };
        }
        let mut verdicts = Vec::new();
        for param in params {
            let mut scope = context.new_inner_scope();
            scope.add_variable_from_value("params", to_cel(&param));
            verdicts.extend(self.validate(&scope));
        }
        verdicts
    }

    fn validate(&self, context: &Context<'_>) -> Vec<Verdict> {
        let mut known: HashMap<Key, Cel> = HashMap::new();
        for (name, expression) in &self.variables {
            let mut scope = context.new_inner_scope();
            scope.add_variable_from_value(
                "variables",
                Cel::Map(CelMap { map: Arc::new(known.clone()) }),
            );
            // A variable that cannot be computed is absent: only expressions that read it fail.
            if let Ok(value) = expression.run(&scope) {
                known.insert(Key::String(Arc::new(name.clone())), value);
            }
        }
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("variables", Cel::Map(CelMap { map: Arc::new(known) }));
        self.validations.iter().map(|validation| validation.run(&scope)).collect()
    }
}

impl Validation {
    fn run(&self, context: &Context<'_>) -> Verdict {
        match self.expression.run(context) {
            Ok(Cel::Bool(true)) => Verdict::Holds,
            Ok(Cel::Bool(false)) => {
                let computed = self.message_expression.as_ref().and_then(|expression| {
                    match expression.run(context) {
                        Ok(Cel::String(text)) => Some(text.trim().to_owned()),
                        _ => None,
                    }
                });
                let message = computed
                    .or_else(|| self.message.as_deref().map(|message| message.trim().to_owned()))
                    .unwrap_or_else(|| {
                        format!("failed expression: {}", self.expression.text.trim())
                    });
                Verdict::Fails { message, reason: self.reason.clone() }
            }
            Ok(_) => Verdict::Broken(format!(
                "expression '{}' does not give a bool",
                self.expression.text
            )),
            Err(why) => Verdict::Broken(format!(
                "expression '{}' resulted in error: {why}",
                self.expression.text
            )),
        }
    }
}

fn resource_matches(known: &str, wanted: &str) -> bool {
    match (known.split_once('/'), wanted.split_once('/')) {
        (None, None) => known == "*" || known == wanted,
        (Some((known, known_sub)), Some((wanted, wanted_sub))) => {
            (known == "*" || known == wanted) && (known_sub == "*" || known_sub == wanted_sub)
        }
        (Some(("*", "*")), None) => true,
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn request(review: &Review<'_>) -> Value {
    let (resource, subresource) = review.resource.split_once('/').unwrap_or((&review.resource, ""));
    json!({
        "operation": review.operation.name(),
        "name": review.name,
        "namespace": review.namespace,
        "dryRun": review.dry_run,
        "subResource": subresource,
        "kind": {"group": review.named.group, "version": review.version, "kind": review.named.kind},
        "resource": {"group": review.named.group, "version": review.version, "resource": resource},
        "userInfo": {"username": "quarry", "uid": "", "groups": ["system:masters", "system:authenticated"], "extra": {}},
    })
}

/// Converts JSON to CEL as the API server does: whole numbers become `int`.
fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Cel::Int(number),
            None => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let map =
                map.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value)));
            Cel::Map(CelMap { map: Arc::new(map.collect()) })
        }
    }
}
