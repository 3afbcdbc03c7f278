// The Python stack of the current thread, read without the GIL.
//
// A thread's own frames cannot change while it is inside a C++ call, so reading them needs no lock.
// The layout of frames is private to each Python version; an unknown version does not compile, and
// the recorder then uses its Python engine.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000
#error "the layout of Python's frames is unknown"
#endif

#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#include <frameobject.h>
#endif

#include <cstdint>

namespace agv {

// One frame: its code object, and the offset of its instruction in bytes (``f_lasti``).
struct Place {
  PyCodeObject* code;
  int32_t offset;
};

#if PY_VERSION_HEX >= 0x030B0000

using Frame = _PyInterpreterFrame;

inline Frame* innermost_frame() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) return nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame;
#else
  return thread->cframe == nullptr ? nullptr : thread->cframe->current_frame;
#endif
}

inline PyCodeObject* code_of(Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

// Whether Python itself shows the frame: not an entry frame, and past its first instruction.
inline bool is_visible(Frame* frame) {
#if PY_VERSION_HEX >= 0x030C0000
  if (frame->owner == FRAME_OWNED_BY_CSTACK) return false;
#endif
#if PY_VERSION_HEX >= 0x030D0000
  if (!PyCode_Check(frame->f_executable)) return false;
#endif
  return !_PyFrame_IsIncomplete(frame);
}

inline Place place_of(Frame* frame) {
  return {code_of(frame), static_cast<int32_t>(_PyInterpreterFrame_LASTI(frame) * sizeof(_Py_CODEUNIT))};
}

inline Frame* caller_of(Frame* frame) {
  return frame->previous;
}

inline bool is_object(Frame* frame, const void* frame_object) {
  return frame_object != nullptr && frame->frame_obj == frame_object;
}

#else

using Frame = PyFrameObject;

inline Frame* innermost_frame() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  return thread == nullptr ? nullptr : thread->frame;
}

inline bool is_visible(Frame*) {
  return true;
}

inline Place place_of(Frame* frame) {
  return {frame->f_code, static_cast<int32_t>(frame->f_lasti * sizeof(_Py_CODEUNIT))};
}

inline Frame* caller_of(Frame* frame) {
  return frame->f_back;
}

inline bool is_object(Frame* frame, const void* frame_object) {
  return frame == frame_object;
}

#endif

}  // namespace agv
