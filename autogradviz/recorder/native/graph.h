// Nodes of the autograd graph: their ids, the saved tensors that they hold, and walks.
//
// NOTE [ Reading nodes without Python objects ]
// From PyTorch 2.13 on, a node whose Python object was created once keeps it, and a chain of some
// 50,000 such nodes overflows the C stack when it is freed. So nodes are read here as C++ objects.
// The names and places of saved tensors are only known to the Python getters ``_raw_saved_*`` of a
// node's type. A getter is called with a temporary object that stands in for the node's own, and
// only until the place of the saved tensor inside the node is known.
#pragma once

#include "packed_objects.h"

#include <pybind11/detail/common.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <malloc.h>

#include <cstring>
#include <deque>
#include <optional>
#include <queue>
#include <typeinfo>

TORCH_PYTHON_API extern PyTypeObject THPFunctionType;
TORCH_PYTHON_API PyObject* THPVariable_Wrap(const at::TensorBase& variable);

namespace torch::autograd {
TORCH_PYTHON_API PyObject* functionToPyObject(const c10::intrusive_ptr<Node>& node);
TORCH_PYTHON_API bool THPCppFunction_Check(PyObject* object);
}  // namespace torch::autograd

// Its header takes long to compile.
TORCH_PYTHON_API c10::impl::PyInterpreter* getPyInterpreter();

namespace agv {
namespace {

using torch::autograd::AnomalyMetadata;
using torch::autograd::Node;
using torch::autograd::SavedVariable;

// Some members are private. The language allows a template argument to name them.
template <class Member, typename Member::type member>
struct Expose {
  friend typename Member::type member_of(Member) {
    return member;
  }
};
struct SavedVersion {
  using type = uint32_t SavedVariable::*;
  friend type member_of(SavedVersion);
};
struct SavedData {
  using type = at::Tensor SavedVariable::*;
  friend type member_of(SavedData);
};
struct NodeMetadata {
  using type = std::unique_ptr<AnomalyMetadata> Node::*;
  friend type member_of(NodeMetadata);
};
template struct Expose<SavedVersion, &SavedVariable::saved_version_>;
template struct Expose<SavedData, &SavedVariable::data_>;
template struct Expose<NodeMetadata, &Node::anomaly_metadata_>;

constexpr uint64_t NO_SEQUENCE = UINT64_MAX;  // of AccumulateGrad, which has no place in creation order

// --- names --------------------------------------------------------------------------------------

// Strings in events, by number: kept for the whole process, protected by the GIL.
class StringTable {
 public:
  int64_t add(const std::string& text) {
    auto [found, is_new] = numbers_.emplace(text, static_cast<int64_t>(objects_.size()));
    if (is_new) objects_.push_back(PyUnicode_InternFromString(text.c_str()));
    return found->second;
  }

  PyObject* get(int64_t number) const {
    if (number == NO_ID) return Py_NewRef(Py_None);
    return Py_XNewRef(objects_[number]);
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
  std::vector<PyObject*> objects_;
};

StringTable& strings() {
  static StringTable& found = *new StringTable;  // see NOTE [ End of the process ]
  return found;
}

// The word for saves without hooks.
int64_t packed_by_pytorch() {
  static const int64_t found = strings().add("pytorch");
  return found;
}

// --- kinds of nodes -----------------------------------------------------------------------------

// One ``_raw_saved_*`` attribute of a type of nodes.
struct SlotPlace {
  std::string label;
  getter get = nullptr;
  void* closure = nullptr;
  bool is_list = false;
  ptrdiff_t offset = -1;  // in the node, or in the Python object of a custom Function
  std::vector<int64_t> part_labels;  // of a list

  int64_t label_of(int32_t index) {
    if (index < 0) return strings().add(label);
    while (part_labels.size() <= static_cast<size_t>(index))
      part_labels.push_back(strings().add(label + "[" + std::to_string(part_labels.size()) + "]"));
    return part_labels[index];
  }
};

// What all nodes of one C++ type have in common; protected by the GIL once it is complete.
struct NodeKind {
  int64_t name = 0;
  bool is_shared = false;  // also the type of nodes with other names
  bool is_function = false;  // a custom Function, in Python
  ptrdiff_t variable = -1;  // where AccumulateGrad has its leaf
  std::vector<SlotPlace> slots;
};

// A Python object of a node as its getters see it.
struct NodeObject {
  PyObject_HEAD
  c10::intrusive_ptr<Node> node;
};

std::string short_name(const Node& node) {
  std::string name = node.name();
  size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

bool is_custom_function(const Node& node) {
  return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0;
}

// Call a getter on a node, without creating the node's own Python object.
PyObject* call_getter(Node& node, PyTypeObject* type, const SlotPlace& place) {
  NodeObject stand_in{};
  Py_SET_TYPE(reinterpret_cast<PyObject*>(&stand_in), type);
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&stand_in), 1);
  stand_in.node = node.getptr();
  PyObject* found = place.get(reinterpret_cast<PyObject*>(&stand_in), place.closure);
  if (found == nullptr) PyErr_Clear();  // the graph was freed
  return found;
}


// The memory that holds a node's saved tensors.
struct Memory {
  char* base;
  size_t size;

  bool contains(const void* address, size_t nbytes) const {
    const char* place = static_cast<const char*>(address);
    return place >= base && place + nbytes <= base + size;
  }

  // Return where consecutive words with these values are, -1 if nowhere.
  ptrdiff_t find(std::initializer_list<const void*> words) const {
    for (size_t i = 0; i + words.size() * sizeof(void*) <= size; i += sizeof(void*))
      if (std::equal(words.begin(), words.end(), reinterpret_cast<void**>(base + i))) return static_cast<ptrdiff_t>(i);
    return -1;
  }
};

Memory memory_of(Node& node, const NodeKind& kind) {
  if (kind.is_function) {
    PyObject* function = node.pyobj_slot()->load_pyobj();
    return {reinterpret_cast<char*>(function),
            function == nullptr ? 0 : static_cast<size_t>(THPFunctionType.tp_basicsize)};
  }
  void* base = dynamic_cast<void*>(&node);
  return {static_cast<char*>(base), malloc_usable_size(base)};
}

// Return the C++ object behind a ``SavedTensor`` of Python, null if it is none.
SavedVariable* saved_variable_of(PyObject* object) {
  if (std::strcmp(Py_TYPE(object)->tp_name, "torch._C._autograd.SavedTensor") != 0) return nullptr;
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(object);
  void* value = instance->simple_layout ? instance->simple_value_holder[0]
                                        : instance->nonsimple.values_and_holders[0];
  return static_cast<SavedVariable*>(value);
}

// Return the value of a slot's Python getter, a new reference; null if it is empty or freed.
PyObject* slot_object(Node& node, const NodeKind& kind, PyTypeObject* type, const SlotPlace& place) {
  PyObject* found;
  if (kind.is_function) {
    PyObject* function = node.pyobj_slot()->load_pyobj();
    found = function == nullptr ? nullptr : place.get(function, place.closure);
    if (found == nullptr) PyErr_Clear();
  } else {
    found = call_getter(node, type, place);
  }
  if (found == Py_None) Py_CLEAR(found);
  return found;
}

// Learn where the saved tensors of a slot are; return whether the node has any. The GIL is held.
bool locate(Node& node, const NodeKind& kind, PyTypeObject* type, SlotPlace& place) {
  PyObject* object = slot_object(node, kind, type, place);
  if (object == nullptr) return false;
  SavedVariable* saved = nullptr;
  Memory memory = memory_of(node, kind);
  place.is_list = PyTuple_Check(object);
  if (!place.is_list) {
    saved = saved_variable_of(object);
    if (saved != nullptr && memory.contains(saved, sizeof(SavedVariable)))
      place.offset = reinterpret_cast<char*>(saved) - memory.base;
  } else if (PyTuple_GET_SIZE(object) > 0) {
    saved = saved_variable_of(PyTuple_GET_ITEM(object, 0));
    if (saved != nullptr) place.offset = memory.find({saved, saved + PyTuple_GET_SIZE(object)});
  }
  Py_DECREF(object);
  return saved != nullptr;
}

using SavedList = std::vector<SavedVariable>;

// Return a saved tensor whose place is known, null if the list that held it was cleared.
const SavedVariable* find_saved(const Memory& memory, const SlotPlace& place, int32_t index) {
  if (memory.base == nullptr || place.offset < 0) return nullptr;
  char* address = memory.base + place.offset;
  if (!place.is_list) return reinterpret_cast<SavedVariable*>(address);
  auto& list = *reinterpret_cast<SavedList*>(address);
  return static_cast<size_t>(index) < list.size() ? &list[index] : nullptr;
}

void add_slots(NodeKind& kind, PyTypeObject* type) {
  constexpr std::string_view prefix = "_raw_saved_";
  for (; type != nullptr; type = type->tp_base) {
    for (PyGetSetDef* each = type->tp_getset; each != nullptr && each->name != nullptr; ++each) {
      std::string_view name = each->name;
      if (name.substr(0, prefix.size()) != prefix) continue;
      SlotPlace place;
      place.label = name.substr(prefix.size());
      if (place.label == "tensors") place.label = "saved_tensors";  // of a custom Function
      place.get = each->get;
      place.closure = each->closure;
      kind.slots.push_back(std::move(place));
    }
  }
  std::sort(kind.slots.begin(), kind.slots.end(),
            [](const SlotPlace& a, const SlotPlace& b) { return a.label < b.label; });
}

// Return the tensor that an AccumulateGrad accumulates into, null if there is none.
const at::Tensor* leaf_of(Node& node, const NodeKind& kind) {
  if (kind.variable < 0) return nullptr;
  auto* leaf = reinterpret_cast<at::Tensor*>(static_cast<char*>(dynamic_cast<void*>(&node)) + kind.variable);
  return leaf->defined() ? leaf : nullptr;
}

// The kinds of nodes: kept for the whole process, protected by the GIL.
class KindTable {
 public:
  struct Known {
    NodeKind kind;
    PyTypeObject* type = nullptr;
  };

  Known& find(Node& node) {
    const std::type_info* type = &typeid(node);
    auto found = known_.find(type);
    if (found != known_.end()) return *found->second;
    return *known_.emplace(type, read(node)).first->second;
  }

 private:
  static std::unique_ptr<Known> read(Node& node) {
    auto known = std::make_unique<Known>();
    NodeKind& kind = known->kind;
    std::string name = short_name(node);
    kind.name = strings().add(name);
    if (is_custom_function(node)) {
      kind.is_shared = kind.is_function = true;
      known->type = &THPFunctionType;
    } else {
      // This node keeps its Python object; others of its type need none.
      PyObject* object = torch::autograd::functionToPyObject(node.getptr());
      if (object == nullptr) {
        PyErr_Clear();
        kind.is_shared = true;
        return known;
      }
      known->type = Py_TYPE(object);
      const char* dot = std::strrchr(known->type->tp_name, '.');
      kind.is_shared = name != (dot == nullptr ? known->type->tp_name : dot + 1);
      if (std::strcmp(typeid(node).name(), "N5torch8autograd14AccumulateGradE") == 0)
        kind.variable = place_of_variable(object, node);
      Py_DECREF(object);
    }
    add_slots(kind, known->type);
    return known;
  }

  static ptrdiff_t place_of_variable(PyObject* object, Node& node) {
    ptrdiff_t found = -1;
    PyObject* variable = PyObject_GetAttrString(object, "variable");
    PyObject* address = variable == nullptr ? nullptr : PyObject_GetAttrString(variable, "_cdata");
    if (address != nullptr) {
      void* base = dynamic_cast<void*>(&node);
      found = Memory{static_cast<char*>(base), malloc_usable_size(base)}.find({PyLong_AsVoidPtr(address)});
    }
    PyErr_Clear();
    Py_XDECREF(address);
    Py_XDECREF(variable);
    return found;
  }

  std::unordered_map<const std::type_info*, std::unique_ptr<Known>> known_;
};

KindTable& kinds() {
  static KindTable& found = *new KindTable;  // see NOTE [ End of the process ]
  return found;
}

// --- records of nodes ---------------------------------------------------------------------------

// A saved tensor of a node. ``place`` is -1 for one that went through hooks.
struct SavedSlot {
  int64_t saved_id;
  int64_t tensor;  // NO_ID if it went through hooks
  int64_t version;
  int64_t hash;  // of its content when it was saved, or NO_ID
  int32_t place;
  int32_t index;  // in a list, or -1
};

using SavedSlots = c10::SmallVector<SavedSlot, 2>;

// What one recording knows of one node.
struct NodeRecord {
  int64_t node_id;
  int64_t seen = NO_ID;  // the last event that describes it
  uint64_t walk = 0;  // the last walk that reached it
  int64_t leaf = NO_ID;  // the tensor that an AccumulateGrad accumulates into
  NodeKind* kind = nullptr;
  SavedSlots slots;  // protected by ``freed_mutex``
};

using RecordPtr = std::shared_ptr<NodeRecord>;

// The metadata of a node, with the records of the recordings that are open. It takes the place of
// PyTorch's own metadata and forwards to it; ``node.metadata`` in Python is the dict of that.
struct NodeTag final : AnomalyMetadata {
  PyObject* dict = nullptr;  // where PyAnomalyMetadata has it
  c10::impl::PyInterpreter* interpreter = getPyInterpreter();  // likewise, from PyTorch 2.15 on
  std::unique_ptr<AnomalyMetadata> inner;
  c10::SmallVector<std::pair<uint64_t, RecordPtr>, 1> records;  // by generation

  ~NodeTag() override {
    for (auto& [generation, record] : records) release_freed(generation, *record);
  }

  void store_stack() override {
    inner->store_stack();
  }

  void print_stack(const std::string& name) override {
    inner->print_stack(name);
  }

  void assign_parent(const c10::intrusive_ptr<Node>& parent) override {
    inner->assign_parent(parent);
  }

  // Record that a node died with its saved tensors. This may run on any thread, without the GIL.
  static void release_freed(uint64_t generation, NodeRecord& record) {
    RecorderTime recorder_time;
    std::lock_guard<std::mutex> lock(freed_mutex());
    if (record.slots.empty()) return;
    for (Recording* recording : open_recordings())
      if (recording->generation == generation)
      {
        recording->holding.erase(&record);
        for (const SavedSlot& slot : record.slots) recording->put_freed(slot.saved_id, slot.place < 0);
      }
    record.slots.clear();
  }
};

struct MetadataLayout : AnomalyMetadata {
  PyObject* dict;
};

NodeTag* tag_of(Node& node) {
  AnomalyMetadata* metadata = (node.*member_of(NodeMetadata{})).get();
  return metadata != nullptr && typeid(*metadata) == typeid(NodeTag) ? static_cast<NodeTag*>(metadata) : nullptr;
}

// Return the record of a node, null if it has none. Another thread may be adding one to the node.
RecordPtr find_record(const Recording& recording, Node& node) {
  NodeTag* tag = tag_of(node);
  if (tag == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(freed_mutex());
  for (auto& [generation, record] : tag->records)
    if (generation == recording.generation) return record;
  return nullptr;
}

// Return the record of a node, a new one if it has none. The GIL is held.
RecordPtr record_of(Recording& recording, Node& node) {
  RecordPtr known = find_record(recording, node);
  if (known != nullptr) return known;
  NodeTag* tag = tag_of(node);
  if (tag == nullptr) {
    node.metadata();  // creates it
    std::unique_ptr<AnomalyMetadata>& metadata = node.*member_of(NodeMetadata{});
    auto fresh = std::make_unique<NodeTag>();
    fresh->dict = reinterpret_cast<MetadataLayout*>(metadata.get())->dict;
    fresh->inner = std::move(metadata);
    tag = fresh.get();
    metadata = std::move(fresh);
  }
  auto record = std::make_shared<NodeRecord>();
  record->node_id = recording.node_count++;
  std::lock_guard<std::mutex> lock(freed_mutex());
  auto closed = std::find_if(tag->records.begin(), tag->records.end(),
                             [&](const auto& each) { return !is_listed(each.first); });
  if (closed != tag->records.end())
    *closed = {recording.generation, record};
  else
    tag->records.emplace_back(recording.generation, record);
  return record;
}

// Record that a node released its saved tensors. ``Recording::mutex`` is held.
void release_slots(Recording& recording, NodeRecord& record, int64_t thread) {
  SavedSlots slots;
  {
    std::lock_guard<std::mutex> lock(freed_mutex());
    slots.swap(record.slots);
    recording.holding.erase(&record);
  }
  for (const SavedSlot& slot : slots) {
    recording.put_released(slot.saved_id, thread, now_ns());
    if (slot.place < 0) recording.released_hooked.push_back(slot.saved_id);
  }
}

// --- walks --------------------------------------------------------------------------------------

// Return the node behind a Python object of one, null with an exception if it is none.
Node* node_of(PyObject* object) {
  if (torch::autograd::THPCppFunction_Check(object)) return reinterpret_cast<NodeObject*>(object)->node.get();
  if (PyObject_TypeCheck(object, &THPFunctionType)) {
    // The node is the last member.
    char* end = reinterpret_cast<char*>(object) + THPFunctionType.tp_basicsize;
    Node* node = *reinterpret_cast<Node**>(end - sizeof(Node*));
    if (node != nullptr && node->pyobj_slot()->load_pyobj() == object) return node;
  }
  PyErr_SetString(PyExc_TypeError, "not a node of the autograd graph");
  return nullptr;
}

class Walk {
 public:
  Walk(Recording& recording, PackedObjects& packed, int64_t thread, int64_t oldest, PyObject* on_hooked)
      : recording_(recording),
        packed_(packed),
        thread_(thread),
        oldest_(oldest),
        on_hooked_(on_hooked),
        walk_(++recording.walks) {}

  // Record every node that gradients of some nodes reach, once; false with an exception on failure.
  //
  // Nodes come in descending order of creation, which is a topological order, and leaves come last.
  bool run(const std::vector<Node*>& roots) {
    for (Node* root : roots) reach(*root);
    while (!heap_.empty() || !leaves_.empty()) {
      Item item;
      if (!heap_.empty()) {
        item = heap_.top();
        heap_.pop();
      } else {
        item = leaves_.front();
        leaves_.pop_front();
      }
      if (!read(*item.node, *item.record)) return false;
    }
    return true;
  }

  std::vector<std::pair<int64_t, Node*>> leaves;  // new, or with hooks: the id of the tensor
  std::vector<std::string> unlocated;  // slots whose saved tensors were not found, when first met
  std::vector<std::pair<int64_t, Node*>> functions;  // new custom Functions: the id of the node

 private:
  struct Item {
    Node* node = nullptr;
    NodeRecord* record = nullptr;

    // Newer nodes first, of the same number the one that was seen first.
    bool operator<(const Item& other) const {
      uint64_t mine = node->sequence_nr(), theirs = other.node->sequence_nr();
      return mine != theirs ? mine < theirs : record->node_id > other.record->node_id;
    }
  };

  int64_t reach(Node& node) {
    RecordPtr record = record_of(recording_, node);
    if (record->walk != walk_) {
      record->walk = walk_;
      if (node.sequence_nr() == NO_SEQUENCE)
        leaves_.push_back({&node, record.get()});
      else
        heap_.push({&node, record.get()});
    }
    return record->node_id;
  }

  bool read(Node& node, NodeRecord& record) {
    next_ids_.clear();
    next_inputs_.clear();
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      next_ids_.push_back(edge.function ? reach(*edge.function) : NO_ID);
      next_inputs_.push_back(static_cast<int64_t>(edge.input_nr));
    }
    if (record.seen >= oldest_) return true;
    KindTable::Known& known = kinds().find(node);
    NodeKind& kind = known.kind;
    record.kind = &kind;
    int64_t name = kind.is_shared ? strings().add(short_name(node)) : kind.name;
    int64_t sequence_nr = node.sequence_nr() == NO_SEQUENCE ? NO_ID : static_cast<int64_t>(node.sequence_nr());
    const at::Tensor* leaf = leaf_of(node, kind);
    bool is_new = record.seen < 0;
    int64_t stack = NO_ID;
    WrapperScope wrappers;
    if (leaf != nullptr) wrappers.read(*leaf);
    {
      std::lock_guard<std::mutex> lock(recording_.mutex);
      int64_t time_ns = now_ns();
      if (leaf != nullptr) record.leaf = recording_.intern(*leaf, thread_, time_ns);
      if (sequence_nr != NO_ID) stack = recording_.custom_stack(sequence_nr);
      record.seen = recording_.seq();
      size_t start = recording_.begin_event(Kind::node_seen, record.seen, time_ns, thread_, stack);
      recording_.put(record.node_id);
      recording_.put(name);
      recording_.put(sequence_nr);
      recording_.put_all(next_ids_);
      recording_.put_all(next_inputs_);
      recording_.put(record.leaf);
      recording_.end_event(start);
    }
    if (!is_new) return true;
    if (leaf != nullptr && (recording_.known_leaves.insert(record.leaf).second || has_hooks(node)))
      leaves.emplace_back(record.leaf, &node);
    if (kind.is_function) functions.emplace_back(record.node_id, &node);
    return kind.slots.empty() || read_slots(node, record, known, sequence_nr, stack);
  }

  static bool has_hooks(Node& node) {
    return !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
  }

  bool read_slots(Node& node, NodeRecord& record, KindTable::Known& known, int64_t sequence_nr, int64_t stack) {
    SavedSlots found;
    for (size_t i = 0; i < known.kind.slots.size(); ++i) {
      SlotPlace& place = known.kind.slots[i];
      if (place.offset < 0) {
        bool has_any = locate(node, known.kind, known.type, place);
        if (has_any && place.offset < 0 && recording_.unlocated.insert(&place).second)
          unlocated.push_back(node.name() + "." + place.label);
      }
      if (place.offset < 0) continue;
      Memory memory = memory_of(node, known.kind);
      int32_t index = place.is_list ? 0 : -1;
      while (const SavedVariable* saved = find_saved(memory, place, index)) {
        if (saved->has_hooks()) {
          if (!read_checkpointed(*saved, record, place, index, sequence_nr, found) &&
              !read_hooked(node, record, known, place, index, sequence_nr, found))
            return false;
        } else {
          read_slot(*saved, record, place.label_of(index), static_cast<int32_t>(i), index, sequence_nr, stack, found);
        }
        if (!place.is_list) break;
        ++index;
      }
    }
    std::lock_guard<std::mutex> lock(freed_mutex());
    record.slots = std::move(found);
    if (!record.slots.empty()) recording_.holding.insert(&record);
    return true;
  }

  void read_slot(const SavedVariable& saved, const NodeRecord& record, int64_t label, int32_t place, int32_t index,
                 int64_t sequence_nr, int64_t stack, SavedSlots& found) {
    const at::Tensor& data = saved.*member_of(SavedData{});
    if (!data.defined()) return;
    WrapperScope wrappers;
    wrappers.read(data);
    std::lock_guard<std::mutex> lock(recording_.mutex);
    int64_t time_ns = now_ns();
    int64_t tensor = recording_.intern(data, thread_, time_ns);
    int64_t seen = Recording::version_of(*data.unsafeGetTensorImpl());
    recording_.seen(tensor, seen, thread_, time_ns);
    int64_t version = sequence_nr == NO_ID ? seen : static_cast<int64_t>(saved.*member_of(SavedVersion{}));
    int64_t saved_id = recording_.saved_count++;
    size_t start = recording_.begin_event(Kind::tensor_saved, recording_.seq(), time_ns, thread_, stack);
    for (int64_t value : {saved_id, record.node_id, sequence_nr, label, tensor, version, packed_by_pytorch(), NO_ID,
                          NO_ID, NO_ID})
      recording_.put(value);
    recording_.end_event(start);
    int64_t hash = recording_.with_fingerprints ? recording_.hash_saved(sequence_nr, tensor) : NO_ID;
    found.push_back({saved_id, tensor, version, hash, place, index});
  }

  // Record a slot that holds what a checkpoint's hook packed; return whether it does.
  bool read_checkpointed(const SavedVariable& saved, const NodeRecord& record, SlotPlace& place, int32_t index,
                         int64_t sequence_nr, SavedSlots& found) {
    auto hook = saved.retrieve_unpack_hook_data();
    if (!hook.has_value()) return false;
    PyObject* content = hook->second.ptr(&hook->second.pyinterpreter());
    int64_t saved_id =
        packed_.slot_found(recording_, content, record.node_id, place.label_of(index), sequence_nr, thread_);
    if (saved_id == NO_ID) return false;
    found.push_back({saved_id, NO_ID, NO_ID, NO_ID, -1, index});
    return true;
  }

  // Let Python find the save behind a packed object.
  bool read_hooked(Node& node, const NodeRecord& record, KindTable::Known& known, SlotPlace& place, int32_t index,
                   int64_t sequence_nr, SavedSlots& found) {
    PyObject* object = slot_object(node, known.kind, known.type, place);
    if (object == nullptr) return true;
    PyObject* slot = index < 0 ? object : PyTuple_GetItem(object, index);
    PyObject* content = slot == nullptr ? nullptr : PyObject_GetAttrString(slot, "data");
    Py_DECREF(object);
    if (content == nullptr) return false;
    PyObject* number = sequence_nr == NO_ID ? Py_NewRef(Py_None) : PyLong_FromLongLong(sequence_nr);
    PyObject* label = strings().get(place.label_of(index));
    PyObject* saved_id = PyObject_CallFunction(on_hooked_, "OLNN", content, record.node_id, number, label);
    Py_DECREF(content);
    if (saved_id == nullptr) return false;
    found.push_back({PyLong_AsLongLong(saved_id), NO_ID, NO_ID, NO_ID, -1, index});
    Py_DECREF(saved_id);
    return !PyErr_Occurred();
  }

  Recording& recording_;
  PackedObjects& packed_;
  int64_t thread_;
  int64_t oldest_;
  PyObject* on_hooked_;
  uint64_t walk_;
  std::priority_queue<Item> heap_;
  std::deque<Item> leaves_;  // apart, so that the heap stays small
  std::vector<int64_t> next_ids_, next_inputs_;
};

// Forget the nodes that some nodes reach. The GIL is held.
void forget_nodes(uint64_t generation, std::vector<Node*> waiting) {
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    NodeTag* tag = tag_of(*node);
    if (tag == nullptr) continue;
    std::lock_guard<std::mutex> lock(freed_mutex());
    for (auto each = tag->records.begin(); each != tag->records.end(); ++each) {
      if (each->first != generation) continue;
      bool was_seen = each->second->seen >= 0;
      for (Recording* recording : open_recordings())
        if (recording->generation == generation) recording->holding.erase(each->second.get());
      tag->records.erase(each);
      if (was_seen)
        for (const torch::autograd::Edge& edge : node->next_edges())
          if (edge.function) waiting.push_back(edge.function.get());
      break;
    }
  }
}

}  // namespace
}  // namespace agv
