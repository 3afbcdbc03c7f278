// The Python stack of the current thread, read without the GIL.
//
// A thread's own frames cannot change while it is inside a C++ call, so reading them needs no lock.
// The layout of frames is private to each Python version. Where it is unknown, and if
// AUTOGRADVIZ_PUBLIC_FRAMES is defined, the public functions are used, which need the GIL: an
// operator then waits for other threads that run Python.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030E0000 && !defined(AUTOGRADVIZ_PUBLIC_FRAMES)
#define AUTOGRADVIZ_PUBLIC_FRAMES
#endif

#if defined(AUTOGRADVIZ_PUBLIC_FRAMES)
#include <frameobject.h>
#elif PY_VERSION_HEX >= 0x030B0000
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

// Return whether the interpreter is ending. A thread that asks for the GIL is then ended by Python,
// in the middle of what it computes.
inline bool is_interpreter_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// Holds the GIL while it exists, unless the interpreter is ending.
class HeldGil {
 public:
  HeldGil() : is_held_(!is_interpreter_ending()) {
    if (is_held_) state_ = PyGILState_Ensure();
  }

  HeldGil(const HeldGil&) = delete;
  HeldGil& operator=(const HeldGil&) = delete;

  ~HeldGil() {
    if (is_held_) PyGILState_Release(state_);
  }

  explicit operator bool() const {
    return is_held_;
  }

 private:
  bool is_held_;
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

#if defined(AUTOGRADVIZ_PUBLIC_FRAMES)

using Frame = PyFrameObject;

// Allows to read frames while it exists. ``Recording::mutex`` is not held, since another thread may
// hold the GIL and wait for it.
class FrameAccess {
 public:
  FrameAccess() : is_open_(PyGILState_GetThisThreadState() != nullptr && !is_interpreter_ending()) {
    if (!is_open_) return;
    state_ = PyGILState_Ensure();
    // Frames are objects: creating them must not run finalizers of Python.
    collects_ = PyGC_Disable();
  }

  FrameAccess(const FrameAccess&) = delete;
  FrameAccess& operator=(const FrameAccess&) = delete;

  ~FrameAccess() {
    if (!is_open_) return;
    if (collects_) PyGC_Enable();
    PyGILState_Release(state_);
  }

 private:
  bool is_open_;
  bool collects_ = false;
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

// Return a frame that is running, whose object the interpreter keeps until it ends.
inline Frame* kept_by_interpreter(Frame* frame) {
  Py_XDECREF(frame);
  return frame;
}

inline Frame* innermost_frame() {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  return thread == nullptr || !PyGILState_Check() ? nullptr : kept_by_interpreter(PyThreadState_GetFrame(thread));
}

// Return whether this thread has a Python frame. The GIL is not needed, and its answer is true for
// a thread of Python that has called nothing yet.
inline bool runs_python_code() {
  return PyGILState_GetThisThreadState() != nullptr;
}

inline bool is_visible(Frame*) {
  return true;
}

inline Place place_of(Frame* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  Py_DECREF(code);  // the frame holds it
  return {code, static_cast<int32_t>(PyFrame_GetLasti(frame))};
}

inline Frame* caller_of(Frame* frame) {
  return kept_by_interpreter(PyFrame_GetBack(frame));
}

inline bool is_object(Frame* frame, const void* frame_object) {
  return frame == frame_object;
}

#else

// Allows to read frames while it exists: the layout is known, so that nothing is needed.
struct FrameAccess {
  FrameAccess() {}
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

inline bool runs_python_code() {
  return innermost_frame() != nullptr;
}

#endif

}  // namespace agv
