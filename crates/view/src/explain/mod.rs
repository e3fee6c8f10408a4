//! `quarry explain`: every check of a device, a set, a LocalVolume or a Volume, what blocks it, and the remedy.
//!
//! The checks are those by which operator and agent decide (`quarry_core`); here they are only grouped and worded.
//! Next to read: `device.rs` with `checks.rs` and `evidence.rs`; `owner.rs`; `volume.rs`.

pub mod checks;
pub mod device;
mod device_owners;
pub mod evidence;
pub mod owner;
pub mod volume;

pub use device::DeviceExplanation;
pub use device_owners::{device_owners, device_owners_offline};
pub use owner::OwnerExplanation;
pub use volume::VolumeExplanation;
