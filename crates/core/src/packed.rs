//! An object of the API, whole or as JSON that is parsed at every read: some kinds have many objects, each much larger
//! in memory than its content.

use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;

#[derive(Debug)]
pub enum Packed<K> {
    Whole(Arc<K>),
    Json(Arc<[u8]>),
}

impl<K> Clone for Packed<K> {
    fn clone(&self) -> Self {
        match self {
            Packed::Whole(object) => Packed::Whole(Arc::clone(object)),
            Packed::Json(bytes) => Packed::Json(Arc::clone(bytes)),
        }
    }
}

impl<K: Serialize + DeserializeOwned> Packed<K> {
    pub fn json(object: &K) -> Self {
        let bytes = serde_json::to_vec(object).expect("an object that was read can be written");
        Packed::Json(bytes.into())
    }

    pub fn open(&self) -> Arc<K> {
        match self {
            Packed::Whole(object) => Arc::clone(object),
            Packed::Json(bytes) => {
                Arc::new(serde_json::from_slice(bytes).expect("what was packed here can be read"))
            }
        }
    }
}
