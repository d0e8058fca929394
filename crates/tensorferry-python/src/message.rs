//! Python's objects as messages, and back.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{BoundObject, intern};
use serde::de::value::BytesDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, Serialize, SerializeMap, SerializeSeq, Serializer};
use tensorferry_reduce::{HandleIndex, HandleKind, handle_kind};
use tensorferry_state::Bundle;
use tensorferry_tensor::DynTensor;

use crate::dlpack;
use crate::queue::Queue;
use crate::tensor::{SharedTensor, Tensor, TensorMut};

/// How deep lists and dicts may be nested: one that contains itself has no end.
const MAX_DEPTH: usize = 100;

/// Any object that a message can hold.
pub(crate) struct Object(pub(crate) Py<PyAny>);

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Python::attach(|py| Item { object: self.0.bind(py), depth: 0 }.serialize(serializer))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Python::attach(|py| Reader { py }.deserialize(deserializer).map(|object| Self(object.unbind())))
    }
}

/// A part of a message that is being written.
struct Item<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    depth: usize,
}

impl<'py> Item<'_, 'py> {
    fn part<'a>(&self, object: &'a Bound<'py, PyAny>) -> Item<'a, 'py> {
        Item { object, depth: self.depth + 1 }
    }

    fn sequence<S: Serializer>(
        &self,
        parts: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(Some(parts.len()))?;
        for part in parts {
            sequence.serialize_element(&self.part(&part))?;
        }
        sequence.end()
    }
}

impl Serialize for Item<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = self.object;
        let failed = |error: PyErr| ser::Error::custom(error);
        if self.depth > MAX_DEPTH {
            return Err(ser::Error::custom(format!(
                "lists and dicts are nested more than {MAX_DEPTH} deep, or contain themselves"
            )));
        }
        if object.is_none() {
            return serializer.serialize_none();
        }
        if let Ok(tensor) = object.cast::<Tensor>() {
            return tensor.get().inner.serialize(serializer);
        }
        if let Ok(tensor) = object.cast::<TensorMut>() {
            let sent = tensor.get().with_sole(|tensor| tensor.serialize(serializer));
            return sent.unwrap_or_else(|reason| Err(ser::Error::custom(reason)));
        }
        if let Ok(tensor) = object.cast::<SharedTensor>() {
            return tensor.get().inner.serialize(serializer);
        }
        if let Ok(text) = object.cast::<PyString>() {
            return serializer.serialize_str(text.to_cow().map_err(failed)?.as_ref());
        }
        if let Ok(flag) = object.cast::<PyBool>() {
            return serializer.serialize_bool(flag.is_true());
        }
        if object.is_instance_of::<PyInt>() {
            return integer(object, serializer);
        }
        if let Ok(number) = object.cast::<PyFloat>() {
            return serializer.serialize_f64(number.value());
        }
        if let Ok(list) = object.cast::<PyList>() {
            return self.sequence(list.iter(), serializer);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return self.sequence(tuple.iter(), serializer);
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            let mut map = serializer.serialize_map(Some(dict.len()))?;
            for (key, value) in dict.iter() {
                map.serialize_entry(&self.part(&key), &self.part(&value))?;
            }
            return map.end();
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return serializer.serialize_bytes(bytes.as_bytes());
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return serializer.serialize_bytes(&bytes.to_vec());
        }
        if let Ok(queue) = object.cast::<Queue>() {
            return queue.get().end().serialize(serializer);
        }
        let py = object.py();
        let has = |name: &Bound<'_, PyString>| object.hasattr(name).map_err(failed);
        if has(intern!(py, "__dlpack__"))? {
            return dlpack::copied(object).map_err(failed)?.serialize(serializer);
        }
        // Numbers of other libraries, such as NumPy's.
        if has(intern!(py, "__index__"))? {
            let number = object.call_method0(intern!(py, "__index__")).map_err(failed)?;
            return integer(&number, serializer);
        }
        if has(intern!(py, "item"))? && has(intern!(py, "__float__"))? {
            let number = object.call_method0(intern!(py, "__float__")).map_err(failed)?;
            return serializer.serialize_f64(number.extract().map_err(failed)?);
        }
        let class = object.get_type().fully_qualified_name().map_err(failed)?;
        Err(ser::Error::custom(format!("an object of class {class} cannot be sent")))
    }
}

fn integer<S: Serializer>(number: &Bound<'_, PyAny>, serializer: S) -> Result<S::Ok, S::Error> {
    if let Ok(number) = number.extract::<i64>() {
        return serializer.serialize_i64(number);
    }
    match number.extract::<u64>() {
        Ok(number) => serializer.serialize_u64(number),
        Err(_) => Err(ser::Error::custom("an integer has more than 64 bits")),
    }
}

/// Reads a part of a message.
#[derive(Clone, Copy)]
struct Reader<'py> {
    py: Python<'py>,
}

impl<'py> Reader<'py> {
    fn made<T, E: de::Error>(self, object: T) -> Result<Bound<'py, PyAny>, E>
    where
        T: IntoPyObject<'py>,
        PyErr: From<T::Error>,
    {
        let object = object.into_pyobject(self.py).map_err(|error| E::custom(PyErr::from(error)))?;
        Ok(object.into_bound().into_any())
    }

    /// A tensor, if these bytes describe one of this message.
    fn tensor<E: de::Error>(self, bytes: &[u8]) -> Option<Result<Bound<'py, PyAny>, E>> {
        match read(bytes).ok()? {
            DynTensor::Frozen(tensor) => Some(self.made(Tensor::new(tensor))),
            DynTensor::Exclusive(tensor) => Some(self.made(TensorMut::new(tensor))),
            DynTensor::Shared(tensor) => Some(self.made(SharedTensor::new(tensor))),
            _ => None,
        }
    }

    /// What else travels by handle, if these bytes name a handle of this message.
    fn by_handle<E: de::Error>(self, bytes: &[u8]) -> Option<Result<Bound<'py, PyAny>, E>> {
        let end = || Queue::over(read(bytes)?).map_err(de::Error::custom);
        let bundle = || self.bundle(&read(bytes)?).map_err(de::Error::custom);
        Some(match handle_kind(HandleIndex::from_bytes(bytes)?)? {
            HandleKind::Ring => end().map_err(failed).and_then(|queue| self.made(queue)),
            HandleKind::Bundle => bundle().map_err(failed),
            _ => Err(E::custom(
                "the message holds a lock, an event or the like, for which Python has no class",
            )),
        })
    }

    /// Named tensors, as a dict.
    fn bundle(self, bundle: &Bundle) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        for entry in bundle {
            let failed = |error: tensorferry_state::BundleError| PyValueError::new_err(error.to_string());
            if entry.is_shared() {
                return Err(PyValueError::new_err(format!(
                    "tensor {:?} of the bundle is shared: send it by itself",
                    entry.name()
                )));
            }
            dict.set_item(entry.name(), Tensor::new(entry.any_tensor().map_err(failed)?))?;
        }
        Ok(dict.into_any())
    }
}

fn failed<E: de::Error>(error: de::value::Error) -> E {
    E::custom(error)
}

fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, de::value::Error> {
    T::deserialize(BytesDeserializer::new(bytes))
}

impl<'de, 'py> DeserializeSeed<'de> for Reader<'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Reader<'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.py.None().into_bound(self.py))
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.py, flag).to_owned().into_any())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.made(number)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.made(number)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        self.made(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.py, text).into_any())
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        // No text begins with the marks of a description and of an index, and few bytes do.
        let by_handle = match bytes.first() {
            Some(0xff) => self.tensor(bytes),
            Some(0xfe) => self.by_handle(bytes),
            _ => None,
        };
        by_handle.unwrap_or_else(|| Ok(PyBytes::new(self.py, bytes).into_any()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.py);
        while let Some(part) = parts.next_element_seed(self)? {
            list.append(part).map_err(de::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(key) = entries.next_key_seed(self)? {
            // A list cannot be a key, and a tuple came as one.
            let key = match key.cast::<PyList>() {
                Ok(list) => list.to_tuple().into_any(),
                Err(_) => key,
            };
            dict.set_item(key, entries.next_value_seed(self)?).map_err(de::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}
