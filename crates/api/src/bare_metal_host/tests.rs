//! Schema, round trips and strings of a BareMetalHost.

use super::*;
