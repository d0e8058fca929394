//! Python's objects as messages, and back.

use std::cell::RefCell;

use pyo3::exceptions::{PyException, PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{BoundObject, intern};
use serde::de::value::BytesDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, Serialize, SerializeMap, SerializeSeq, Serializer};
use tensorferry_cuda_ipc::AnyCudaTensor;
use tensorferry_reduce::{HandleIndex, HandleKind, handle_kind};
use tensorferry_state::Bundle;
use tensorferry_tensor::{DynTensor, is_description};

use crate::cuda::CudaTensor;
use crate::dlpack::{self, Copied};
use crate::queue::Queue;
use crate::tensor::{SharedTensor, Tensor, TensorMut};

/// How deep lists and dicts may be nested: one that contains itself has no end.
const MAX_DEPTH: usize = 64;

thread_local! {
    /// What Python code has raised while a value was being written. Serde passes on a text only.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// What was raised while the last value was written in this thread.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Whether it is none of the errors that say that a value cannot be sent: an interrupt, or too little memory.
pub(crate) fn is_passed_on(py: Python<'_>, raised: &PyErr) -> bool {
    !raised.is_instance_of::<PyException>(py) || raised.is_instance_of::<PyMemoryError>(py)
}

/// Any object that a message can hold.
pub(crate) struct Object(pub(crate) Py<PyAny>);

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Python::attach(|py| Item { object: self.0.bind(py), depth: 0 }.serialize(serializer))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Python::attach(|py| {
            Reader { py, depth: 0 }.deserialize(deserializer).map(|object| Self(object.unbind()))
        })
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
        let failed = |error: PyErr| {
            let text = error.to_string();
            RAISED.set(Some(error));
            ser::Error::custom(text)
        };
        if self.depth > MAX_DEPTH {
            return Err(ser::Error::custom(format!(
                "lists and dicts are nested more than {MAX_DEPTH} deep, or contain themselves"
            )));
        }
        if object.is_none() {
            return serializer.serialize_none();
        }
        let serializer = match tensor(object, serializer) {
            Ok(written) => return written,
            Err(unused) => unused,
        };
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
            // As it is now: other code may run while its parts are written, and change it.
            return self.sequence(list.to_tuple().iter(), serializer);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return self.sequence(tuple.iter(), serializer);
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            let entries: Vec<_> = dict.iter().collect();
            let mut map = serializer.serialize_map(Some(entries.len()))?;
            for (key, value) in entries {
                map.serialize_entry(&self.part(&key), &self.part(&value))?;
            }
            return map.end();
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return string_of(bytes.as_bytes(), serializer);
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return string_of(&bytes.to_vec(), serializer);
        }
        if let Ok(queue) = object.cast::<Queue>() {
            return queue.get().end().serialize(serializer);
        }
        let py = object.py();
        let has = |name: &Bound<'_, PyString>| object.hasattr(name).map_err(failed);
        if has(intern!(py, "__dlpack__"))? {
            return match dlpack::copied(object).map_err(failed)? {
                Copied::Host(tensor) => tensor.serialize(serializer),
                Copied::Device(tensor) => tensor.inner.serialize(serializer),
            };
        }
        // Scalars of NumPy, as Python's.
        if has(intern!(py, "item"))? && has(intern!(py, "dtype"))? {
            let scalar = object.call_method0(intern!(py, "item")).map_err(failed)?;
            let is_plain = scalar.is_instance_of::<PyFloat>()
                || scalar.is_instance_of::<PyInt>()
                || scalar.is_instance_of::<PyString>()
                || scalar.is_instance_of::<PyBytes>();
            if is_plain {
                return self.part(&scalar).serialize(serializer);
            }
        }
        if has(intern!(py, "__index__"))? {
            let number = object.call_method0(intern!(py, "__index__")).map_err(failed)?;
            return integer(&number, serializer);
        }
        let class = object.get_type().fully_qualified_name().map_err(failed)?;
        Err(ser::Error::custom(format!("an object of class {class} cannot be sent")))
    }
}

/// Writes a tensor of one of the module's classes. Anything else leaves the serializer as it was.
fn tensor<S: Serializer>(object: &Bound<'_, PyAny>, serializer: S) -> Result<Result<S::Ok, S::Error>, S> {
    if let Ok(tensor) = object.cast::<Tensor>() {
        return Ok(tensor.get().inner.serialize(serializer));
    }
    if let Ok(tensor) = object.cast::<TensorMut>() {
        let sent = tensor.get().with_sole(|tensor| tensor.serialize(serializer));
        return Ok(sent.unwrap_or_else(|reason| Err(ser::Error::custom(reason))));
    }
    if let Ok(tensor) = object.cast::<SharedTensor>() {
        return Ok(tensor.get().inner.serialize(serializer));
    }
    if let Ok(tensor) = object.cast::<CudaTensor>() {
        return Ok(tensor.get().inner.serialize(serializer));
    }
    Err(serializer)
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

/// Bytes of a user. Those that a reader without types would take for something that travels by handle are
/// refused.
fn string_of<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let is_mark = AnyCudaTensor::is_mark(bytes);
    if is_mark || HandleIndex::from_bytes(bytes).is_some() || is_description(bytes) {
        return Err(ser::Error::custom(
            "these bytes are by chance what a tensor or a queue is written as: send them in a tensor, or with \
             another byte before them",
        ));
    }
    serializer.serialize_bytes(bytes)
}

/// Reads a part of a message.
#[derive(Clone, Copy)]
struct Reader<'py> {
    py: Python<'py>,
    /// How many lists and dicts it lies in. More than were written may come from a sender without that limit.
    depth: usize,
}

/// Lists as tuples, at any depth: a list cannot be a key, and a tuple came as one.
fn as_key(key: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let Ok(list) = key.cast::<PyList>() else { return Ok(key) };
    let parts = list.iter().map(as_key).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(list.py(), parts)?.into_any())
}

impl<'py> Reader<'py> {
    fn inside<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("lists and dicts are nested more than {MAX_DEPTH} deep")));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

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
                "the message holds a lock, a sealed tensor or the like, for which Python has no class",
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
        let (list, inside) = (PyList::empty(self.py), self.inside()?);
        let mut is_first = true;
        while let Some(part) = parts.next_element_seed(inside)? {
            if is_first && part.cast::<PyBytes>().is_ok_and(|bytes| AnyCudaTensor::is_mark(bytes.as_bytes()))
            {
                return self.made(CudaTensor::new(AnyCudaTensor::deserialize_behind_mark(parts)?));
            }
            is_first = false;
            list.append(part).map_err(de::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (dict, inside) = (PyDict::new(self.py), self.inside()?);
        while let Some(key) = entries.next_key_seed(inside)? {
            let key = as_key(key).map_err(de::Error::custom)?;
            dict.set_item(key, entries.next_value_seed(inside)?).map_err(de::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}
