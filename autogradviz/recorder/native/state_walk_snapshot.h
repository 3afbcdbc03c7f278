// A snapshot of the objects that a walk over Python state read (``state_walk.py``), and its
// comparison with what is there now.
//
// NOTE [ Facts ]
// Which values a walk queues is a function of what it reads from each visited object: attributes,
// items, cells, globals that code names. Each of these reads is a fact: a role, a key and a value.
// The same code reads the facts when the snapshot is taken and when it is compared. If all facts are
// the same, in the same order, a new walk would queue the same values. When the snapshot is taken,
// the queued values among the facts must be those of the Python walk, otherwise there is no snapshot.
//
// Objects of the user are not kept. They are compared by address and class, and an object at an
// address that was used again is noticed by its own facts. Keys, plain values and code are kept:
// of them nothing else is read.
//
// What is read in no form of its own (a slot, a logger, a user's dictionary) is read in Python, by
// the function that the walk uses; its facts are where its parts were found, and the parts.
//
// NOTE [ Replaced objects ]
// A region gets new tensors in each step, often in new tuples, and counts its steps. Then the queue
// stays as it is but for these values: a plain value may be replaced by another one, and a tensor, a
// container or a function by one of the same class, whose facts are then compared. Their readings
// do not depend on their identity. An object that is reached twice is visited once, so only an
// object may be replaced that was queued once, by one that is queued once.
#pragma once

#include "recording_object.h"

#include <cstring>
#include <vector>

namespace agv {
namespace {

// The way in which the parts of an object are read; the numbers are those of ``state_walk_snapshot.py``.
enum class Form { leaf, module, function, container, object, name_space, user_class, tensor, other };

// The attributes of modules; the numbers are those of ``state_walk_snapshot.py``.
enum class AttributeRole { internal, own, hooks, parameters, buffers, modules };

struct Fact {
  int64_t role;
  PyObject* key;  // owned, or null
  PyObject* value;  // an address, owned only if ``owns``; or null
  bool owns;
};

struct Visit {
  size_t index;  // in the queue
  PyTypeObject* type;  // an address
  Form form;
  size_t end;  // length of the queue after it
  bool queues;  // it is not at the greatest depth
  bool is_root;
  bool with_methods;  // the methods of its class were read for the first time
  PyObject* place = nullptr;  // owned: path and depth, if it is read in Python
  PyObject* parts = nullptr;  // owned: where its parts were found then
};

// The numbers are those of ``state_walk_snapshot.py``.
enum class CodeOrigin { user, library, installed };

// What is read from a code object once.
struct CodeFacts {
  PyObject* code;
  CodeOrigin origin;
  PyObject* names;  // a tuple: those that the code and the code inside it read
};

// What a reading of a tensor depends on.
struct TensorFacts {
  size_t number;  // of the reading
  size_t index;  // in the queue
  const c10::TensorImpl* tensor = nullptr;
  const void* memory = nullptr;
  int64_t version = 0;
  c10::SmallVector<int64_t, 5> sizes;
  caffe2::TypeMeta dtype;
  c10::Device device = at::kCPU;
  bool requires_grad = false;
};

constexpr Py_ssize_t MAX_ITEMS = 12, MAX_KEPT = 4096;  // of value_repr.py, state_walk_snapshot.py
enum Role : int64_t {
  CODE, CELL, DEFAULT, KEYWORD, ATTRIBUTE, GLOBAL, LIBRARY_MODULE, USER_MODULE, MODULE_ITEM, SIZE,
  ITEM, BASE, SKIPPED_BASE, METHOD, CLASS_ITEM, NAME, PART, TABLE_ITEM, MODULE_ATTRIBUTE,
  ROOT, SKIPPED, INSTALLED_BASE,
};
constexpr int64_t NUMBERED = 64;  // roles with an index are role + NUMBERED * index

bool is_plain(PyObject* value) {
  return value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
      PyBool_Check(value) || PyBytes_CheckExact(value) || PyComplex_CheckExact(value);
}

bool is_long(PyObject* value) {
  return (PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) > MAX_KEPT) ||
      (PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) > MAX_KEPT);
}

bool starts_with(PyObject* name, const char* prefix) {
  for (Py_ssize_t i = 0; prefix[i] != 0; ++i)
    if (i >= PyUnicode_GET_LENGTH(name) || PyUnicode_READ_CHAR(name, i) != static_cast<Py_UCS4>(prefix[i])) return false;
  return true;
}

bool is_container(PyObject* value) {
  static PyObject* deque = [] {
    PyObject* module = PyImport_ImportModule("_collections");
    PyObject* found = module == nullptr ? nullptr : PyObject_GetAttrString(module, "deque");
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
  }();
  return PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value) || PyAnySet_Check(value) ||
      (deque != nullptr && PyType_IsSubtype(Py_TYPE(value), reinterpret_cast<PyTypeObject*>(deque)));
}

class WalkSnapshot {
 public:
  ~WalkSnapshot() {
    for (const Fact& fact : facts_) {
      Py_XDECREF(fact.key);
      if (fact.owns) Py_XDECREF(fact.value);
    }
    for (const CodeFacts& each : codes_) Py_DECREF(each.names);
    for (PyObject* each : names_in_class_) Py_DECREF(each);
    for (const Visit& each : visits_) {
      Py_XDECREF(each.place);
      Py_XDECREF(each.parts);
    }
    Py_XDECREF(questions_);
  }

  // Read all facts; false if that is not possible, or with an exception.
  bool take(PyObject* values, size_t roots, std::vector<Visit> visits, std::vector<TensorFacts> tensors,
            const std::vector<std::pair<size_t, size_t>>& by_facts, std::vector<std::pair<size_t, size_t>> others,
            const std::vector<size_t>& replaceable, PyObject* questions) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); ++i) {
      queue_.push_back(PyList_GET_ITEM(values, i));
      replaceable_.push_back(nullptr);
    }
    for (size_t i : replaceable) replaceable_[i] = Py_TYPE(queue_[i]);
    roots_ = roots;
    visits_ = std::move(visits);
    tensors_ = std::move(tensors);
    others_ = std::move(others);
    questions_ = Py_NewRef(questions);
    taking_ = true;
    bool done = read_all(values);
    taking_ = false;
    for (const auto& [number, visit] : by_facts)
      if (visits_[visit].form == Form::other) others_.emplace_back(number, visits_[visit].index);
    release_held();
    return done;
  }

  // Return ([(number, value), ...], [(index, value), ...]): the readings that must be read again, and
  // the plain values that were replaced; None if other facts have changed.
  PyObject* compare(PyObject* values) {
    if (PyList_GET_SIZE(values) != static_cast<Py_ssize_t>(roots_)) Py_RETURN_NONE;
    // The collector may run while attributes are read, and with it anything: hold what is read.
    PyObject* found = read_all(values) && !is_shared_now() ? changed() : nullptr;
    release_held();
    if (found != nullptr) {  // else they are reported when the other facts are as before again
      replaced_.clear();
      plain_.clear();
    }
    if (found == nullptr && !PyErr_Occurred()) Py_RETURN_NONE;
    return found;
  }

 private:
  void release_held() {
    std::vector<PyObject*> held;
    held.swap(held_);
    for (PyObject* each : held) Py_DECREF(each);
    held.clear();
    if (held_.empty()) held_.swap(held);  // its memory
  }

  bool read_all(PyObject* roots) {
    fact_ = code_ = names_ = queued_ = 0;
    queues_ = true;
    for (size_t i = 0; i < roots_; ++i)
      if (!fact(ROOT, nullptr, PyList_GET_ITEM(roots, static_cast<Py_ssize_t>(i)), true)) return false;
    for (Visit& visit : visits_) {
      if (visit.index >= queued_) return false;
      PyObject* object = queue_[visit.index];
      if (Py_TYPE(object) != visit.type) return false;
      queues_ = visit.queues;
      if (!(taking_ ? read_first(object, visit) : read(object, visit)) || queued_ != visit.end) return false;
    }
    return queued_ == queue_.size() && fact_ == facts_.size();
  }

  // Read the facts of an object while the snapshot is taken, in Python if they are not read here.
  bool read_first(PyObject* object, Visit& visit) {
    size_t fact = fact_, code = code_, names = names_, queued = queued_, classes = classes_.size();
    if (visit.form != Form::other) {
      if (read(object, visit) && queued_ == visit.end) return true;
      if (PyErr_Occurred()) return false;
    }
    for (; fact_ > fact; --fact_) {
      Py_XDECREF(facts_.back().key);
      if (facts_.back().owns) Py_DECREF(facts_.back().value);
      facts_.pop_back();
    }
    for (; code_ > code; --code_) {
      Py_DECREF(codes_.back().names);
      codes_.pop_back();
    }
    for (; names_ > names; --names_) {
      Py_DECREF(names_in_class_.back());
      names_in_class_.pop_back();
    }
    classes_.resize(classes);
    queued_ = queued;
    if (visit.with_methods && !note_classes(object)) return false;
    visit.form = Form::other;
    return read_other(object, visit);
  }

  bool read_other(PyObject* object, Visit& visit) {
    PyObject* found = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(questions_, PARTS_OF), object, visit.place, nullptr);
    if (found == nullptr) return false;
    held_.push_back(found);
    PyObject *places, *values;
    if (!PyArg_ParseTuple(found, "O!O!", &PyTuple_Type, &places, &PyList_Type, &values)) return false;
    if (visit.parts == nullptr)
      visit.parts = Py_NewRef(places);
    else if (PyObject_RichCompareBool(visit.parts, places, Py_EQ) != 1)
      return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values); ++i)
      if (!fact(PART, nullptr, PyList_GET_ITEM(values, i), true)) return false;
    return true;
  }

  // Whether an object that was replaced is now reached twice.
  bool is_shared_now() const {
    for (size_t index : replaced_)
      if (std::count(queue_.begin(), queue_.end(), queue_[index]) != 1) return true;
    return false;
  }

  // Put another value into the queue, if the walk would go on in the same way; return whether it would.
  bool replace(Fact& known, PyObject* value) {
    if (known.value == nullptr) return false;
    if (is_plain(value)) {
      if (!known.owns || !is_plain(known.value) || is_long(value)) return false;
      plain_.push_back(queued_);
      Py_SETREF(known.value, Py_NewRef(value));
    } else {
      if (known.owns || replaceable_[queued_] != Py_TYPE(value)) return false;
      replaced_.push_back(queued_);
      known.value = value;
    }
    queue_[queued_] = value;
    return true;
  }

  // Note or compare one fact. ``key`` is a plain value or null.
  bool fact(int64_t role, PyObject* key, PyObject* value, bool queued, bool keeps = false) {
    queued = queued && queues_;
    if (taking_) {
      if (key != nullptr && !is_plain(key)) return false;
      if (queued && !is_next(value)) return false;
      bool owns = value != nullptr && (keeps || is_plain(value));
      if (owns) Py_INCREF(value);
      Py_XINCREF(key);
      facts_.push_back({role, key, value, owns});
    } else {
      if (fact_ >= facts_.size()) return false;
      Fact& known = facts_[fact_];
      if (known.role != role || (known.key != key && !is_same_text(known.key, key))) return false;
      if (known.value != value && !(queued && replace(known, value))) return false;
      if (queued && !known.owns) held_.push_back(Py_NewRef(value));
    }
    ++fact_;
    if (queued) ++queued_;
    return true;
  }

  // Whether a value is the next one in the queue; the text of a variable of the environment is new each time.
  bool is_next(PyObject* value) {
    if (queued_ >= queue_.size()) return false;
    if (queue_[queued_] != value && !is_same_text(queue_[queued_], value)) return false;
    queue_[queued_] = value;
    return true;
  }

  static bool is_same_text(PyObject* first, PyObject* second) {
    return first != nullptr && second != nullptr && PyUnicode_CheckExact(first) && PyUnicode_CheckExact(second) &&
        PyUnicode_Compare(first, second) == 0;
  }

  // The role of the next fact, which was decided when the snapshot was taken.
  int64_t known_role() const {
    return fact_ < facts_.size() ? facts_[fact_].role : -1;
  }

  // Ask Python a question; -1 with an exception.
  int ask(Py_ssize_t number, PyObject* argument) {
    PyObject* answer = PyObject_CallOneArg(PyTuple_GET_ITEM(questions_, number), argument);
    if (answer == nullptr) return -1;
    int found = PyLong_Check(answer) ? static_cast<int>(PyLong_AsLong(answer)) : PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return found;
  }

  // Ask Python whether an item of a class, or a global of installed code, is not queued.
  int skips(PyObject* value, PyObject* globals) {
    PyObject* answer = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(questions_, IS_ELSEWHERE), value, globals, nullptr);
    int found = answer == nullptr ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return found;
  }

  enum Question {
    FROM_LIBRARY, IS_USER_MODULE, ROLE_OF_ATTRIBUTE, ORIGIN_OF_CODE, NAMES_OF_CODE, IS_ELSEWHERE, NAMES_IN_CLASS, PARTS_OF,
  };

  bool read(PyObject* object, Visit& visit) {
    switch (visit.form) {
      case Form::leaf:
        return true;
      case Form::module:
        return read_module(object) && (!visit.with_methods || read_methods(visit));
      case Form::function:
        return read_function(object, visit.is_root);
      case Form::container:
        return read_container(object);
      case Form::object:
        return read_attributes(object, "__") && (!visit.with_methods || read_methods(visit));
      case Form::name_space:
        return read_attributes(object, "__");
      case Form::tensor:
        return read_attributes(object, "_dynamo_");
      case Form::user_class:
        return read_class(visit, object);
      case Form::other:
        return read_other(object, visit);
    }
    return false;
  }

  // Read the entries of a dictionary, except those whose names begin with a prefix.
  bool read_entries(PyObject* entries, int64_t role, const char* hidden = nullptr, PyObject* hidden_name = nullptr) {
    if (!PyDict_CheckExact(entries)) return false;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(entries, &at, &key, &value)) {
      if (!PyUnicode_CheckExact(key)) return false;
      if (hidden != nullptr && starts_with(key, hidden)) continue;
      if (hidden_name != nullptr && PyUnicode_Compare(key, hidden_name) == 0) continue;
      if (!fact(role, key, value, true)) return false;
    }
    return true;
  }

  bool read_attributes(PyObject* object, const char* hidden) {
    PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
    if (attributes == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
      PyErr_Clear();
      return true;
    }
    bool same = read_entries(attributes, ATTRIBUTE, hidden);
    Py_DECREF(attributes);
    return same;
  }

  bool read_module(PyObject* module) {
    PyObject* attributes = PyObject_GenericGetDict(module, nullptr);
    if (attributes == nullptr) return false;
    PyObject* tables[3] = {};
    bool same = PyDict_CheckExact(attributes) && read_module_attributes(attributes, tables);
    for (PyObject* table : tables) same = same && table != nullptr && read_entries(table, TABLE_ITEM);
    Py_DECREF(attributes);
    return same;
  }

  bool read_module_attributes(PyObject* attributes, PyObject* (&tables)[3]) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(attributes, &at, &key, &value)) {
      if (!PyUnicode_CheckExact(key)) return false;
      int64_t role = known_role();
      if (taking_) {
        int answer = ask(ROLE_OF_ATTRIBUTE, key);
        if (answer < 0) return false;
        role = MODULE_ATTRIBUTE + NUMBERED * answer;
      }
      if (role % NUMBERED != MODULE_ATTRIBUTE) return false;
      auto attribute = static_cast<AttributeRole>(role / NUMBERED);
      bool is_own = attribute == AttributeRole::own;
      if (!fact(role, key, is_own ? value : nullptr, is_own)) return false;
      if (attribute == AttributeRole::hooks) {  // an OrderedDict, or a dict
        if (!PyDict_Check(value) || !read_hooks(value)) return false;
      } else if (attribute >= AttributeRole::parameters) {
        tables[static_cast<int>(attribute) - static_cast<int>(AttributeRole::parameters)] = value;
      }
    }
    return true;
  }

  bool read_hooks(PyObject* hooks) {
    Py_ssize_t count = PyDict_GET_SIZE(hooks), at = 0;
    if (count == 0) return true;
    if (!fact(SIZE + NUMBERED * count, nullptr, nullptr, false)) return false;
    PyObject *key, *value;
    for (Py_ssize_t i = 0; i < MAX_ITEMS && PyDict_Next(hooks, &at, &key, &value); ++i)
      if (!fact(ITEM, nullptr, value, true)) return false;
    return true;
  }

  bool read_function(PyObject* object, bool is_root) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    if (!fact(CODE, nullptr, function->func_code, false, true) || !find_code(function->func_code)) return false;
    CodeFacts code = codes_[code_++];
    static PyObject* name_wrapped = PyUnicode_InternFromString("__wrapped__");
    PyObject* attributes = function->func_dict;
    if (code.origin == CodeOrigin::library) {
      PyObject* wrapped = attributes == nullptr ? nullptr : PyDict_GetItemWithError(attributes, name_wrapped);
      if (wrapped != nullptr) return fact(PART, nullptr, wrapped, true);
      return !PyErr_Occurred() && (!is_root || read_cells(function));
    }
    if (!read_cells(function) || !read_defaults(function)) return false;
    if (attributes != nullptr && !read_entries(attributes, ATTRIBUTE, nullptr, name_wrapped)) return false;
    return read_globals(function->func_globals, code.names, code.origin == CodeOrigin::installed);
  }

  bool find_code(PyObject* code) {
    if (!taking_) return code_ < codes_.size();  // the fact was the same
    int origin = ask(ORIGIN_OF_CODE, code);
    if (origin < 0) return false;
    PyObject* names = PyObject_CallOneArg(PyTuple_GET_ITEM(questions_, NAMES_OF_CODE), code);
    if (names == nullptr) return false;
    if (!PyTuple_CheckExact(names)) {  // it reads the environment
      Py_DECREF(names);
      return false;
    }
    codes_.push_back({code, static_cast<CodeOrigin>(origin), names});
    return true;
  }

  bool read_cells(PyFunctionObject* function) {
    if (function->func_closure == nullptr) return true;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_closure); ++i) {
      PyObject* cell = PyTuple_GET_ITEM(function->func_closure, i);
      PyObject* value = PyCell_Check(cell) ? PyCell_GET(cell) : nullptr;
      if (value != nullptr && !fact(CELL + NUMBERED * i, nullptr, value, true)) return false;  // null: not bound yet
    }
    return true;
  }

  bool read_defaults(PyFunctionObject* function) {
    PyObject* defaults = function->func_defaults;
    Py_ssize_t count = defaults == nullptr ? 0 : PyTuple_GET_SIZE(defaults);
    for (Py_ssize_t i = 0; i < count; ++i)
      if (!fact(DEFAULT + NUMBERED * (count - i), nullptr, PyTuple_GET_ITEM(defaults, i), true)) return false;
    return function->func_kwdefaults == nullptr || read_entries(function->func_kwdefaults, KEYWORD);
  }

  bool read_globals(PyObject* globals, PyObject* names, bool installed) {
    if (!PyDict_CheckExact(globals)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      PyObject* value = PyDict_GetItemWithError(globals, name);
      if (value == nullptr) {
        if (PyErr_Occurred()) return false;
        continue;
      }
      int64_t role = known_role();
      if (installed && taking_) {
        int is_skipped = skips(value, globals);
        if (is_skipped < 0) return false;
        role = is_skipped != 0 ? SKIPPED : GLOBAL;
      }
      if (installed || !PyModule_Check(value)) {
        bool is_skipped = installed && role == SKIPPED;
        if (!fact(is_skipped ? SKIPPED : GLOBAL, name, value, !is_skipped)) return false;
        continue;
      }
      if (taking_) {
        int is_users = ask(IS_USER_MODULE, value);
        if (is_users < 0) return false;
        role = is_users != 0 ? USER_MODULE : LIBRARY_MODULE;
      }
      if ((role != USER_MODULE && role != LIBRARY_MODULE) || !fact(role, name, value, false)) return false;
      if (role == USER_MODULE && !read_names(PyModule_GetDict(value), names)) return false;
    }
    return true;
  }

  bool read_names(PyObject* attributes, PyObject* names) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* name = PyTuple_GET_ITEM(names, i);
      PyObject* value = PyDict_GetItemWithError(attributes, name);
      if (value == nullptr && PyErr_Occurred()) return false;
      if (value != nullptr && !PyModule_Check(value) && !fact(MODULE_ITEM, name, value, true)) return false;
    }
    return true;
  }

  // Read the functions and containers of the classes of an object.
  bool read_methods(const Visit& visit) {
    PyObject* bases = visit.type->tp_mro;
    if (bases == nullptr) return false;
    auto* kind = reinterpret_cast<PyObject*>(visit.type);
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(bases); ++i) {
      PyObject* base = PyTuple_GET_ITEM(bases, i);
      int64_t role = known_role();
      if (taking_ && (role = role_of_base(kind, base)) < 0) return false;
      if ((role != BASE && role != SKIPPED_BASE && role != INSTALLED_BASE) || !fact(role, nullptr, base, false))
        return false;
      if (role == BASE && !read_class_entries(base, visit.is_root)) return false;
      if (role == INSTALLED_BASE && !read_class_names(base, visit.is_root)) return false;
    }
    return true;
  }

  // Decide which entries of a class are read for an object, while the snapshot is taken; -1 with an exception.
  int64_t role_of_base(PyObject* kind, PyObject* base) {
    int is_library = ask(FROM_LIBRARY, base);
    if (is_library != 0) return is_library < 0 ? -1 : SKIPPED_BASE;
    PyObject* names = PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(questions_, NAMES_IN_CLASS), kind, base, nullptr);
    if (names == nullptr) return -1;
    std::pair<PyObject*, PyObject*> known{names == Py_None ? nullptr : kind, base};
    int64_t role = names == Py_None ? BASE : INSTALLED_BASE;
    if (std::find(classes_.begin(), classes_.end(), known) != classes_.end()) role = SKIPPED_BASE;
    classes_.push_back(known);
    if (role == INSTALLED_BASE)
      names_in_class_.push_back(names);
    else
      Py_DECREF(names);
    return role;
  }

  // Note the classes of an object whose methods were read in Python.
  bool note_classes(PyObject* object) {
    auto* kind = reinterpret_cast<PyObject*>(Py_TYPE(object));
    PyObject* bases = Py_TYPE(object)->tp_mro;
    for (Py_ssize_t i = 0; bases != nullptr && i + 1 < PyTuple_GET_SIZE(bases); ++i) {
      size_t names = names_in_class_.size();
      if (role_of_base(kind, PyTuple_GET_ITEM(bases, i)) < 0) return false;
      if (names_in_class_.size() == names) continue;
      Py_DECREF(names_in_class_.back());
      names_in_class_.pop_back();
    }
    return true;
  }

  bool read_class_entries(PyObject* base, bool is_root) {
    auto* type = reinterpret_cast<PyTypeObject*>(base);
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_dict == nullptr) return false;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(type->tp_dict, &at, &key, &value))
      if (!PyUnicode_CheckExact(key) || !read_class_entry(key, value, is_root)) return false;
    return true;
  }

  // Read some entries of a class of an installed package, and how many there are.
  bool read_class_names(PyObject* base, bool is_root) {
    auto* type = reinterpret_cast<PyTypeObject*>(base);
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_dict == nullptr) return false;
    if (names_ >= names_in_class_.size()) return false;
    PyObject* names = names_in_class_[names_++];
    if (!fact(SIZE + NUMBERED * PyDict_GET_SIZE(type->tp_dict), nullptr, nullptr, false)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
      PyObject* value = PyDict_GetItemWithError(type->tp_dict, PyTuple_GET_ITEM(names, i));
      if (value == nullptr || !read_class_entry(PyTuple_GET_ITEM(names, i), value, is_root)) return false;
    }
    return true;
  }

  // Read a function or a container of a class.
  bool read_class_entry(PyObject* key, PyObject* value, bool is_root) {
    PyObject* item = function_of(value);
    if (item == nullptr) return false;
    bool same = true;
    if (PyFunction_Check(item))
      same = fact(METHOD, key, item, false) && read_function(item, is_root);
    else if (is_container(item) && !starts_with(key, "__"))
      same = fact(CLASS_ITEM, key, item, true);
    Py_DECREF(item);
    return same;
  }

  // Return a new reference to the function of a static or class method, or to any other item itself.
  static PyObject* function_of(PyObject* value) {
    if (!PyType_IsSubtype(Py_TYPE(value), &PyStaticMethod_Type) && !PyType_IsSubtype(Py_TYPE(value), &PyClassMethod_Type))
      return Py_NewRef(value);
    static PyObject* name = PyUnicode_InternFromString("__func__");
    return PyObject_GetAttr(value, name);
  }

  bool read_class(const Visit&, PyObject* object) {
    auto* type = reinterpret_cast<PyTypeObject*>(object);
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_dict == nullptr) return false;
    return fact(NAME, reinterpret_cast<PyHeapTypeObject*>(object)->ht_name, nullptr, false) &&
        read_entries(type->tp_dict, ATTRIBUTE, "__");
  }

  // Read a short sequence or a dictionary; the content of sets and of longer sequences is hashed in Python.
  bool read_container(PyObject* object) {
    Py_ssize_t size = PyObject_Size(object);  // of a built-in class
    if (size < 0 || !fact(SIZE + NUMBERED * size, nullptr, nullptr, false)) return false;
    if (PyDict_CheckExact(object)) return read_first_entries(object);
    if (size > MAX_ITEMS || (!PyList_CheckExact(object) && !PyTuple_Check(object))) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = PyList_CheckExact(object) ? PyList_GET_ITEM(object, i) : PyTuple_GET_ITEM(object, i);
      if (!fact(ITEM, nullptr, item, true)) return false;
    }
    return true;
  }

  bool read_first_entries(PyObject* object) {
    PyObject *key, *value;
    Py_ssize_t at = 0, count = 0;
    while (count++ < MAX_ITEMS && PyDict_Next(object, &at, &key, &value))
      if (!is_plain(key) || !fact(ITEM, key, value, true)) return false;
    return true;
  }

  // Return the readings that must be read again: those of tensors that changed, and the others.
  PyObject* changed() {
    PyObject* found = PyList_New(0);
    if (found == nullptr) return nullptr;
    for (TensorFacts& each : tensors_) {
      PyObject* object = queue_[each.index];
      if (update(each, object)) continue;
      if (PyErr_Occurred() || !append_pair(found, each.number, Py_NewRef(object))) {
        Py_DECREF(found);
        return nullptr;
      }
    }
    for (const auto& [number, index] : others_) {
      if (append_pair(found, number, Py_NewRef(queue_[index]))) continue;
      Py_DECREF(found);
      return nullptr;
    }
    PyObject* plain = PyList_New(0);
    bool done = plain != nullptr;
    for (size_t index : plain_) done = done && append_pair(plain, index, Py_NewRef(queue_[index]));
    if (done) return Py_BuildValue("NN", found, plain);
    Py_DECREF(found);
    Py_XDECREF(plain);
    return nullptr;
  }

  // Read a tensor; return whether nothing changed. False with an exception on failure.
  static bool update(TensorFacts& known, PyObject* object) {
    at::Tensor tensor = tensor_of(object);
    if (PyErr_Occurred() || !tensor.defined()) return false;
    c10::TensorImpl* now = tensor.unsafeGetTensorImpl();
    try {
      const void* memory = now->has_storage() ? now->unsafe_storage().data_ptr().get() : nullptr;
      if (memory != nullptr) memory = static_cast<const char*>(memory) + now->storage_offset() * now->itemsize();
      int64_t version = now->is_inference() ? NO_ID : static_cast<int64_t>(now->version_counter().current_version());
      c10::IntArrayRef sizes = now->sizes();
      bool requires_grad = tensor.requires_grad();
      if (known.tensor == now && known.memory == memory && known.version == version && sizes.equals(known.sizes) &&
          known.dtype == now->dtype() && known.device == now->device() && known.requires_grad == requires_grad)
        return true;
      known.memory = memory;
      known.version = version;
      known.sizes.assign(sizes.begin(), sizes.end());
      known.dtype = now->dtype();
      known.device = now->device();
      known.requires_grad = requires_grad;
      known.tensor = now;
    } catch (const std::exception&) {  // symbolic or nested sizes
      known.tensor = nullptr;
    }
    return false;
  }

  std::vector<PyObject*> queue_;  // addresses; the facts own the plain values
  std::vector<PyTypeObject*> replaceable_;  // the class of what may stand in its place, or null
  size_t roots_ = 0;
  std::vector<Visit> visits_;
  std::vector<Fact> facts_;
  std::vector<CodeFacts> codes_;  // by function that was read; the facts own the code
  std::vector<PyObject*> names_in_class_;  // by installed class that was read
  std::vector<TensorFacts> tensors_;
  std::vector<std::pair<size_t, size_t>> others_;  // number of the reading, index in the queue
  PyObject* questions_ = nullptr;  // functions of Python
  std::vector<size_t> replaced_, plain_;  // indices in the queue, since the last comparison that succeeded

  // While facts are read:
  bool taking_ = false;
  std::vector<std::pair<PyObject*, PyObject*>> classes_;  // whose methods were read, while the snapshot is taken
  std::vector<PyObject*> held_;
  size_t fact_ = 0, code_ = 0, names_ = 0, queued_ = 0;
  bool queues_ = true;
};

struct SnapshotObject {
  PyObject_HEAD
  WalkSnapshot* content;
};

PyTypeObject* snapshot_type = nullptr;

void free_snapshot(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<SnapshotObject*>(self)->content;
  type->tp_free(self);
  Py_DECREF(type);
}

// compare(roots) -> ([(number, value), ...], [(index, value), ...]): the readings that may have changed and
// the plain values that have; None if the walk has
PyObject* compare(PyObject* self, PyObject* roots) {
  if (!PyList_CheckExact(roots)) {
    PyErr_SetString(PyExc_TypeError, "the roots must be a list");
    return nullptr;
  }
  return reinterpret_cast<SnapshotObject*>(self)->content->compare(roots);
}

PyMethodDef snapshot_methods[] = {
    {"compare", compare, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot snapshot_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_snapshot)},
    {Py_tp_methods, snapshot_methods},
    {0, nullptr},
};

PyType_Spec snapshot_spec = {"autogradviz.recorder.native.WalkSnapshot", sizeof(SnapshotObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, snapshot_slots};

bool parse_pairs(PyObject* listed, std::vector<std::pair<size_t, size_t>>& found) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(listed); ++i) {
    Py_ssize_t number, index;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(listed, i), "nn", &number, &index)) return false;
    found.emplace_back(number, index);
  }
  return true;
}

// take_snapshot(values, roots, visits, tensors, by_facts, others, replaceable, questions) -> WalkSnapshot, or None
//
// ``visits`` are tuples of index, form, length, queues, is_root, with_methods, place; ``tensors`` and
// ``others`` are pairs of the number of a reading and the index of its value, ``by_facts`` of the number of a
// reading and that of its visit; ``replaceable`` are indices.
PyObject* take_snapshot(PyObject*, PyObject* arguments) {
  PyObject *values, *listed, *tensors, *by_facts, *others, *indices, *questions;
  Py_ssize_t roots;
  if (!PyArg_ParseTuple(arguments, "O!nO!O!O!O!O!O!", &PyList_Type, &values, &roots, &PyList_Type, &listed, &PyList_Type,
                        &tensors, &PyList_Type, &by_facts, &PyList_Type, &others, &PyList_Type, &indices, &PyTuple_Type, &questions))
    return nullptr;
  std::vector<Visit> visits;
  std::vector<PyObject*> places;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(listed); ++i) {
    Py_ssize_t index, end;
    int form, queues, is_root, with_methods;
    PyObject* place;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(listed, i), "ninpppO", &index, &form, &end, &queues, &is_root, &with_methods,
                          &place))
      return nullptr;
    visits.push_back({static_cast<size_t>(index), Py_TYPE(PyList_GET_ITEM(values, index)), static_cast<Form>(form),
                      static_cast<size_t>(end), queues != 0, is_root != 0, with_methods != 0});
    places.push_back(place);
  }
  std::vector<size_t> replaceable;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(indices); ++i)
    replaceable.push_back(PyLong_AsSize_t(PyList_GET_ITEM(indices, i)));
  if (PyErr_Occurred()) return nullptr;
  std::vector<std::pair<size_t, size_t>> pairs, known, kept;
  if (!parse_pairs(tensors, pairs) || !parse_pairs(by_facts, known) || !parse_pairs(others, kept)) return nullptr;
  for (size_t i = 0; i < visits.size(); ++i) visits[i].place = Py_NewRef(places[i]);
  std::vector<TensorFacts> facts;
  for (const auto& [number, index] : pairs) facts.push_back({number, index});
  auto* self = reinterpret_cast<SnapshotObject*>(snapshot_type->tp_alloc(snapshot_type, 0));
  if (self == nullptr) return nullptr;
  self->content = new WalkSnapshot();
  if (self->content->take(values, roots, std::move(visits), std::move(facts), known, std::move(kept), replaceable, questions))
    return reinterpret_cast<PyObject*>(self);
  Py_DECREF(self);
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace
}  // namespace agv
