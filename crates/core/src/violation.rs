//! What the checkers of plans have in common: all violations as one text.

use std::fmt::Display;

/// For logs and Events; `None`: there are no violations, and the plan may be applied.
pub fn joined(violations: &[impl Display]) -> Option<String> {
    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}
