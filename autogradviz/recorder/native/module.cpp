// The extension module: the methods and functions that the recorder's Python code calls.

#include "module_and_graph_methods.h"
#include "saved_tensor_and_backward_methods.h"
#include "device_span_methods.h"
#include "life_cycle_methods.h"
#include "event_clock_and_counter_methods.h"
#include "stack_methods.h"
#include "table_methods.h"
#include "checkpoint_hooks.h"
#include "state_walk_snapshot.h"

#include <pthread.h>

namespace agv {
namespace {

PyMethodDef methods[] = {
    {"take", take, METH_NOARGS, nullptr},
    {"buffered", buffered, METH_NOARGS, nullptr},
    {"open", open, METH_VARARGS, nullptr},
    {"is_open", is_open, METH_NOARGS, nullptr},
    {"enter_hook", enter_hook, METH_NOARGS, nullptr},
    {"begin_recorder_time", begin_recorder_time, METH_NOARGS, nullptr},
    {"end_recorder_time", end_recorder_time, METH_NOARGS, nullptr},
    {"program_time_ns", program_time_ns, METH_O, nullptr},
    {"recorder_time_ns", recorder_time_ns, METH_NOARGS, nullptr},
    {"leave_hook", leave_hook, METH_VARARGS, nullptr},
    {"live_stacks", live_stacks, METH_NOARGS, nullptr},
    {"drop_stacks", drop_stacks, METH_NOARGS, nullptr},
    {"start", start, METH_NOARGS, nullptr},
    {"stop", stop, METH_NOARGS, nullptr},
    {"close", close, METH_NOARGS, nullptr},
    {"next_seq", next_seq, METH_NOARGS, nullptr},
    {"take_step", take_step, METH_NOARGS, nullptr},
    {"collective_count", collective_count, METH_O, nullptr},
    {"last_op", last_op, METH_NOARGS, nullptr},
    {"event_count", event_count, METH_NOARGS, nullptr},
    {"attach", attach, METH_VARARGS, nullptr},
    {"set_fingerprints", set_fingerprints, METH_O, nullptr},
    {"suspend", suspend, METH_O, nullptr},
    {"set_origins", set_origins, METH_VARARGS, nullptr},
    {"intern", intern, METH_O, nullptr},
    {"intern_all", intern_all, METH_O, nullptr},
    {"fingerprint", fingerprint, METH_O, nullptr},
    {"storage_id", storage_id, METH_O, nullptr},
    {"id_of_storage", id_of_storage, METH_O, nullptr},
    {"bumped", bumped, METH_VARARGS, nullptr},
    {"live_tensor_ids", live_tensor_ids, METH_NOARGS, nullptr},
    {"live_storages", live_storages, METH_NOARGS, nullptr},
    {"live_nbytes", live_nbytes, METH_NOARGS, nullptr},
    {"emit_freed", emit_freed, METH_NOARGS, nullptr},
    {"failed_op", failed_op, METH_NOARGS, nullptr},
    {"prune", prune, METH_VARARGS, nullptr},
    {"prune_arguments", prune_arguments, METH_O, nullptr},
    {"prune_history", prune_history, METH_O, nullptr},
    {"restored", restored, METH_VARARGS, nullptr},
    {"capture", capture, METH_NOARGS, nullptr},
    {"intern_stack", intern_stack, METH_O, nullptr},
    {"record_packing", reinterpret_cast<PyCFunction>(static_cast<_PyCFunctionFast>(record_packing)), METH_FASTCALL,
     nullptr},
    {"custom_stack", custom_stack, METH_O, nullptr},
    {"set_custom_stack", set_custom_stack, METH_VARARGS, nullptr},
    {"recent", recent, METH_NOARGS, nullptr},
    {"walk", walk, METH_VARARGS, nullptr},
    {"enter_module", enter_module, METH_O, nullptr},
    {"exit_module", exit_module, METH_VARARGS, nullptr},
    {"record_detach", record_detach, METH_VARARGS, nullptr},
    {"set_due", set_due, METH_VARARGS, nullptr},
    {"node_id", node_id, METH_O, nullptr},
    {"is_new", is_new, METH_O, nullptr},
    {"forget", forget, METH_O, nullptr},
    {"forget_leaf", forget_leaf, METH_O, nullptr},
    {"next_saved_id", next_saved_id, METH_NOARGS, nullptr},
    {"saved_count", saved_count, METH_NOARGS, nullptr},
    {"take_limits", take_limits, METH_NOARGS, nullptr},
    {"held_saves", held_saves, METH_NOARGS, nullptr},
    {"take_released", take_released, METH_NOARGS, nullptr},
    {"wrap_hooks", wrap_hooks, METH_VARARGS, nullptr},
    {"set_tracer", set_tracer, METH_VARARGS, nullptr},
    {"discard_dead_packed", discard_dead_packed, METH_O, nullptr},
    {"release_packed", release_packed, METH_O, nullptr},
    {"prune_packed", prune_packed, METH_O, nullptr},
    {"begin_backward", begin_backward, METH_VARARGS, nullptr},
    {"end_backward", end_backward, METH_VARARGS, nullptr},
    {"hook_runs", hook_runs, METH_NOARGS, nullptr},
    {"current_node", current_node, METH_NOARGS, nullptr},
    {"innermost_run", innermost_run, METH_NOARGS, nullptr},
    {"failed_run", failed_run, METH_O, nullptr},
    {"run_count", run_count, METH_NOARGS, nullptr},
    {"drop_runs", drop_runs, METH_O, nullptr},
    {"time_device", time_device, METH_O, nullptr},
    {"begin_span", begin_span, METH_VARARGS, nullptr},
    {"end_span", end_span, METH_O, nullptr},
    {"waiting_spans", waiting_spans, METH_NOARGS, nullptr},
    {"take_spans", take_spans, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_recording)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_recording)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_recording)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_recording)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"autogradviz.recorder.native.Recording", sizeof(RecordingObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

PyMethodDef functions[] = {
    {"code", code, METH_O, nullptr},
    {"field_counts", field_counts, METH_NOARGS, nullptr},
    {"line_of", line_of, METH_VARARGS, nullptr},
    {"norm", norm, METH_O, nullptr},
    {"read_number", read_number, METH_O, nullptr},
    {"ordinary_nbytes", ordinary_nbytes, METH_O, nullptr},
    {"set_recorder_folder", set_recorder_folder, METH_O, nullptr},
    {"take_snapshot", take_snapshot, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "autogradviz_native", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

int act_on_events(void*) {
  for (RecordingObject* each : objects()) {
    if (each->recording == nullptr || each->recording != observed().load() || each->on_due == nullptr || each->on_due == Py_None)
      continue;
    PyObject* call = Py_NewRef(each->on_due);
    PyObject* done = PyObject_CallFunction(call, "L", static_cast<long long>(each->recording->next_seq.load()));
    if (done == nullptr) PyErr_WriteUnraisable(call);
    Py_XDECREF(done);
    Py_DECREF(call);
    break;
  }
  return 0;
}

}  // namespace agv

PyMODINIT_FUNC PyInit_autogradviz_native() {
  agv::name_cdata = PyUnicode_InternFromString("_cdata");
  if (!agv::prepare_hooks()) return nullptr;
  agv::registry();  // here, where no lock is held
  pthread_atfork(nullptr, nullptr, agv::in_child);
  PyObject* module = PyModule_Create(&agv::definition);
  if (module == nullptr) return nullptr;
  agv::batch_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&agv::batch_spec));
  PyObject* type = PyType_FromSpec(&agv::spec);
  agv::snapshot_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&agv::snapshot_spec));
  bool added = agv::batch_type != nullptr && agv::snapshot_type != nullptr && type != nullptr && PyModule_AddObject(module, "Recording", type) == 0;
  if (!added || PyModule_AddObjectRef(module, "TracingHook", reinterpret_cast<PyObject*>(agv::hook_type)) < 0) {
    Py_XDECREF(type);
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
