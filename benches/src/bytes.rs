//! What the copying ways send.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Elements that serde copies as a whole and not one by one. The sender keeps them, to fill them again.
#[derive(Debug)]
pub struct Bytes<T>(pub Arc<Vec<T>>);

impl<T: Pod> Serialize for Bytes<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytemuck::cast_slice(&self.0))
    }
}

impl<'de, T: Pod> Deserialize<'de> for Bytes<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T>(PhantomData<T>);

        impl<T: Pod> Visitor<'_> for Elements<T> {
            type Value = Bytes<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes<T>, E> {
                Ok(Bytes(Arc::new(bytemuck::pod_collect_to_vec(bytes))))
            }

            /// Not copied again where it is aligned well enough.
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes<T>, E> {
                let elements = bytemuck::allocation::try_cast_vec(bytes);
                let copied = |(_, bytes): (_, Vec<u8>)| bytemuck::pod_collect_to_vec(&bytes);
                Ok(Bytes(Arc::new(elements.unwrap_or_else(copied))))
            }
        }

        deserializer.deserialize_byte_buf(Elements(PhantomData))
    }
}
