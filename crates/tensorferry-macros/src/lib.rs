//! The attributes of tensorferry-spawn.
