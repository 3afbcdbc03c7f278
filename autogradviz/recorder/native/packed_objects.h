// The objects that the pack hooks of checkpoint returned, and the saves behind them.
//
// The saves of other pairs of hooks are in the Python table, ``SaveTable``: they also refer to the
// tensor, or to those in the packed object.
#pragma once

#include "recording_state.h"

namespace agv {
namespace {

// Return whether a weak reference refers to an object.
inline bool refers_to(PyObject* reference, PyObject* object) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* found = nullptr;
  if (PyWeakref_GetRef(reference, &found) < 0) PyErr_Clear();
  Py_XDECREF(found);
  return found == object;
#else
  return PyWeakref_GetObject(reference) == object;
#endif
}

// One save that went through hooks.
struct PackedSave {
  int64_t saved_id;
  int64_t version;
  int64_t sequence_nr;  // of the node that saved, by the counter at that time
  int64_t hash;  // of the content, or NO_ID
  bool is_recomputed;  // its graph dies at once: the forward's save remains
  int64_t node_id = NO_ID;
  int64_t unpacked = 0;  // number of times
  PyObject* holder = nullptr;  // a weak reference to what the hook returned, or null
};

// The saves of packed objects, by address. Protected by the GIL.
class PackedObjects {
 public:
  ~PackedObjects() {
    clear();
  }

  // Remember the object that a hook returned for a save.
  void add(Recording& recording, PackedSave save, PyObject* result, int64_t thread) {
    // This may run the garbage collector, and thus anything.
    save.holder = PyWeakref_NewRef(result, nullptr);
    if (save.holder == nullptr) PyErr_Clear();  // numbers, tuples
    forget_released(recording);
    discard_dead(recording, result, thread);
    address_of_[save.saved_id] = result;
    saves_[result].push_back(save);
  }

  // Forget saves whose graph died unnoticed, so that the address was used again.
  void discard_dead(Recording& recording, PyObject* result, int64_t thread) {
    auto found = saves_.find(result);
    if (found == saves_.end()) return;
    Saves saves = found->second;
    for (const PackedSave& save : saves) {
      if (save.holder == nullptr || refers_to(save.holder, result)) continue;
      if (!save.is_recomputed) {
        std::lock_guard<std::mutex> lock(recording.mutex);
        recording.put_released(save.saved_id, thread, now_ns());
      }
      discard(save.saved_id);
    }
  }

  // Return the save that a hook packed as ``result``, null if there is none: of this node, the
  // least unpacked.
  PackedSave* find(PyObject* result, int64_t node_id) {
    PackedSave* best = nullptr;
    auto found = saves_.find(result);
    if (found == saves_.end()) return best;
    for (PackedSave& save : found->second) {
      if (node_id != NO_ID && save.node_id != NO_ID && save.node_id != node_id) continue;
      if (best == nullptr || save.unpacked < best->unpacked) best = &save;
    }
    return best;
  }

  // Count an unpack of a save.
  void count_unpack(int64_t saved_id) {
    auto address = address_of_.find(saved_id);
    if (address == address_of_.end()) return;
    for (PackedSave& save : saves_[address->second])
      if (save.saved_id == saved_id) ++save.unpacked;
  }

  // Assign a node and slot to the save that a hook packed as ``result``; return its id, or NO_ID.
  //
  // If a hook returned the same object for several nodes, their sequence numbers decide.
  int64_t slot_found(Recording& recording, PyObject* result, int64_t node_id, int64_t label, int64_t sequence_nr,
                     int64_t thread) {
    auto found = saves_.find(result);
    if (found == saves_.end()) return NO_ID;
    PackedSave* best = nullptr;
    for (PackedSave& save : found->second) {
      if (save.node_id != NO_ID) continue;
      if (best == nullptr) best = &save;
      if (save.sequence_nr != sequence_nr) continue;
      best = &save;
      break;
    }
    if (best == nullptr) return NO_ID;
    best->node_id = node_id;
    std::lock_guard<std::mutex> lock(recording.mutex);
    size_t start = recording.begin_event(Kind::slot_seen, recording.seq(), now_ns(), thread, NO_ID);
    for (int64_t value : {best->saved_id, node_id, label}) recording.put(value);
    recording.end_event(start);
    return best->saved_id;
  }

  // Drop the weak references to an object.
  void release(PyObject* object) {
    for (auto& [address, saves] : saves_)
      for (PackedSave& save : saves)
        if (save.holder != nullptr && refers_to(save.holder, object)) Py_CLEAR(save.holder);
  }

  // Forget the saves whose nodes have released them.
  void forget_released(Recording& recording) {
    std::vector<int64_t> ids;
    {
      std::lock_guard<std::mutex> lock(recording.mutex);
      ids.swap(recording.released_hooked);
      std::lock_guard<std::mutex> freed_lock(freed_mutex());
      ids.insert(ids.end(), recording.freed_hooked.begin(), recording.freed_hooked.end());
      recording.freed_hooked.clear();
    }
    for (int64_t id : ids)
      if (!discard(id)) others_.push_back(id);
  }

  // Return the released saves of other tables since the last call.
  std::vector<int64_t> take_others() {
    return std::exchange(others_, {});
  }

  // Forget a save; return whether it is known.
  bool discard(int64_t saved_id) {
    auto address = address_of_.find(saved_id);
    if (address == address_of_.end()) return false;
    auto found = saves_.find(address->second);
    Saves& saves = found->second;
    for (size_t i = 0; i < saves.size(); ++i) {
      if (saves[i].saved_id != saved_id) continue;
      Py_XDECREF(saves[i].holder);
      saves.erase(saves.begin() + i);
      break;
    }
    if (saves.empty()) saves_.erase(found);
    address_of_.erase(address);
    return true;
  }

  // Forget the saves with smaller ids.
  void prune(int64_t first_saved_id) {
    std::vector<int64_t> ids;
    for (const auto& each : address_of_)
      if (each.first < first_saved_id) ids.push_back(each.first);
    for (int64_t id : ids) discard(id);
  }

  void clear() {
    for (auto& [address, saves] : saves_)
      for (PackedSave& save : saves) Py_XDECREF(save.holder);
    saves_.clear();
    address_of_.clear();
    others_.clear();
  }

 private:
  using Saves = c10::SmallVector<PackedSave, 1>;

  std::unordered_map<const PyObject*, Saves> saves_;
  std::unordered_map<int64_t, PyObject*> address_of_;  // by saved id; not references
  std::vector<int64_t> others_;
};

}  // namespace
}  // namespace agv
