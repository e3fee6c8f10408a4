//! Embedded API: a Kubernetes-style API server inside one process, so that the same controllers,
//! kubectl and the console work without a cluster. It serves Quarry's custom resources and the few
//! built-in kinds they need; it is not a complete Kubernetes API server. Start at `Server`;
//! `engine` holds the rules, `router` the HTTP layer.

mod admission;
mod backend;
mod cel;
mod commit;
mod engine;
mod files;
mod kind;
mod patch;
mod present;
mod router;
mod schema;
mod select;
mod server;
mod snapshot;
mod status;
mod tls;

pub use backend::redb::{DumpedObject, OpenError, dump};
pub use files::FileError;
pub use kind::BuiltIn;
pub use router::ApiService;
pub use server::{Clock, Options, Server, SetupError, Uids};
pub use snapshot::Snapshot;
pub use status::ApiError;
pub use tls::{IdentityError, Kubeconfig, ServingIdentity, load_or_create_token};
