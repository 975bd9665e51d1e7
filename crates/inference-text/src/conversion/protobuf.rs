//! The wire format of protocol buffers, read with bounds.

/// The value of a field, without what its message says of its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A number, a boolean or an enum.
    Varint(u64),
    /// Four bytes, which may be a float.
    Fixed32(u32),
    Fixed64,
    /// A text, bytes or a message of its own.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number in it. A negative one of 32 bits is written with its sign to 64.
    pub fn int(self) -> Option<i64> {
        match self {
            Value::Varint(value) => Some(value as i64),
            _ => None,
        }
    }

    pub fn flag(self) -> Option<bool> {
        Some(self.int()? != 0)
    }

    pub fn float(self) -> Option<f32> {
        match self {
            Value::Fixed32(bits) => Some(f32::from_bits(bits)),
            _ => None,
        }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn text(self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

/// The fields of a message, one after another. A fault is the last that it yields.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message, length: message.len() }
    }

    fn at(&self) -> usize {
        self.length - self.rest.len()
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err(format!("it ends within a number at byte {}", self.length));
            };
            self.rest = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(format!("the number before byte {} is longer than 64 bits", self.at()))
    }

    fn take(&mut self, count: u64, field: u64) -> Result<&'a [u8], String> {
        let at = self.at();
        let taken = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = taken.ok_or_else(|| {
            format!("field {field} at byte {at} has {count} bytes, of which {} are there", {
                self.rest.len()
            })
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), String> {
        let at = self.at();
        let key = self.varint()?;
        let (field, wire) = (key >> 3, key & 7);
        if field == 0 {
            return Err(format!("the field at byte {at} has the number 0"));
        }
        let value = match wire {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8, field)?;
                Value::Fixed64
            }
            2 => {
                let count = self.varint()?;
                Value::Bytes(self.take(count, field)?)
            }
            5 => {
                let bytes = self.take(4, field)?.try_into().unwrap_or_default();
                Value::Fixed32(u32::from_le_bytes(bytes))
            }
            wire => return Err(format!("field {field} at byte {at} has the unknown type {wire}")),
        };
        Ok((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, Value};

    #[test]
    fn fields_of_all_types_are_read_in_their_order() {
        let bytes = b"\x08\x96\x01\x12\x02ab\x1d\0\0\x80\x3f\x21abcdefgh\x28\
                      \xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        let fields: Vec<_> = Fields::of(bytes).map(Result::unwrap).collect();
        assert_eq!(fields[..2], [(1, Value::Varint(150)), (2, Value::Bytes(b"ab"))]);
        assert_eq!(fields[2].1.float(), Some(1.0));
        assert_eq!(fields[3], (4, Value::Fixed64));
        assert_eq!(fields[4].1.int(), Some(-1));
        assert_eq!((fields[4].1.text(), fields[1].1.int()), (None, None));
    }

    #[test]
    fn damaged_messages_end_with_their_fault() {
        for (bytes, fault) in [
            (&b"\x08"[..], "ends within a number"),
            (b"\x08\x80", "ends within a number"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than 64 bits"),
            (b"\x12\x05ab", "field 2 at byte 2 has 5 bytes, of which 2 are there"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "of which 0 are there"),
            (b"\x1d\0\0", "has 4 bytes, of which 2"),
            (b"\x0b\x01", "unknown type 3"),
            (b"\x00\x01", "has the number 0"),
        ] {
            let last = Fields::of(bytes).last().unwrap();
            assert!(last.as_ref().is_err_and(|error| error.contains(fault)), "{last:?}: {fault}");
            assert_eq!(Fields::of(bytes).count(), 1);
        }
    }
}
