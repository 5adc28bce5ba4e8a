//! Scripts of the server itself, compiled once and loaded into many realms.
//!
//! Parsing the preludes takes longer than everything else that a new realm needs; their bytecode loads in
//! microseconds. rquickjs supports that only for modules, so this file calls the engine directly. No other file of
//! the query server does.

#![allow(
    unsafe_code,
    reason = "the engine's calls for bytecode have no safe form"
)]

use std::ffi::CStr;

use rquickjs::{Ctx, Error, FromJs, Result, Value, qjs};

/// A compiled script. Its bytes come only from [`Script::compile`], which makes loading them safe.
pub(super) struct Script(Vec<u8>);

impl Script {
    /// Compiles `source`, named `name` in stack traces. Sources are not kept: user code cannot print them.
    pub fn compile(ctx: &Ctx<'_>, name: &CStr, source: &CStr) -> Result<Script> {
        let context = ctx.as_raw().as_ptr();
        let flags = qjs::JS_EVAL_TYPE_GLOBAL | qjs::JS_EVAL_FLAG_COMPILE_ONLY;
        // SAFETY: the context lives as long as `ctx`; both strings end in NUL, and the length excludes it, as JS_Eval
        // requires. The engine copies what it keeps.
        let code = unsafe {
            let length = source.count_bytes() as qjs::size_t;
            qjs::JS_Eval(
                context,
                source.as_ptr(),
                length,
                name.as_ptr(),
                flags as i32,
            )
        };
        let flags = qjs::JS_WRITE_OBJ_BYTECODE | qjs::JS_WRITE_OBJ_STRIP_SOURCE;
        let mut length = 0;
        // SAFETY: `code` is a value of this context that this function owns, and frees once. The
        // written bytes are `length` long, belong to the caller and are freed once.
        unsafe {
            if qjs::JS_IsException(code) {
                return Err(Error::Exception);
            }
            let bytes = qjs::JS_WriteObject(context, &mut length, code, flags as i32);
            qjs::JS_FreeValue(context, code);
            if bytes.is_null() {
                return Err(Error::Exception);
            }
            let script = Script(std::slice::from_raw_parts(bytes, length as usize).to_vec());
            qjs::js_free(context, bytes.cast());
            Ok(script)
        }
    }

    /// Runs the script in a realm; returns its value.
    pub fn run<'js, V: FromJs<'js>>(&self, ctx: &Ctx<'js>) -> Result<V> {
        let context = ctx.as_raw().as_ptr();
        // SAFETY: the bytes were written by the same engine in the same process, so they are well-formed bytecode.
        // JS_EvalFunction takes ownership of `code` and transfers that of its result, which the new Value owns.
        unsafe {
            let length = self.0.len() as qjs::size_t;
            let flags = qjs::JS_READ_OBJ_BYTECODE as i32;
            let code = qjs::JS_ReadObject(context, self.0.as_ptr(), length, flags);
            if qjs::JS_IsException(code) {
                return Err(Error::Exception);
            }
            let result = qjs::JS_EvalFunction(context, code);
            if qjs::JS_IsException(result) {
                return Err(Error::Exception);
            }
            V::from_js(ctx, Value::from_raw(ctx.clone(), result))
        }
    }
}
