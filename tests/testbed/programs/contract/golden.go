package main

import (
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extender "k8s.io/kube-scheduler/extender/v1"
)

const (
	group      = "esg-scheduler.io"
	gpuPercent = core.ResourceName(group + "/gpu-percent")
)

// created is the one instant in all golden files.
var created = meta.NewTime(time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC))

// golden gives each file's name (without .json) and value.
func golden() map[string]any {
	names := []string{"node-000", "node-001", "node-002"}
	none := []string{}
	pod := functionPod("image-classification-0001-segmentation", 1)
	plain := plainPod()
	unicode := unicodePod()
	victim := functionPod("low-priority", 2)
	return map[string]any{
		"request-filter-names":        extender.ExtenderArgs{Pod: pod, NodeNames: &names},
		"request-filter-nodes":        extender.ExtenderArgs{Pod: pod, Nodes: nodes(names)},
		"request-filter-no-names":     extender.ExtenderArgs{Pod: pod, NodeNames: &none},
		"request-filter-plain-pod":    extender.ExtenderArgs{Pod: plain, NodeNames: &names},
		"request-filter-unicode":      extender.ExtenderArgs{Pod: unicode, NodeNames: &names},
		"request-prioritize-names":    extender.ExtenderArgs{Pod: pod, NodeNames: &names},
		"request-prioritize-nodes":    extender.ExtenderArgs{Pod: pod, Nodes: nodes(names)},
		"request-bind":                binding(pod, names[0]),
		"request-bind-unicode":        binding(unicode, names[1]),
		"request-preempt-meta":        preemptionMeta(pod, victim),
		"request-preempt-victims":     preemptionVictims(pod, victim),
		"answer-filter-names":         filterAnswer(&names, nil),
		"answer-filter-nodes":         filterAnswer(nil, nodes(names)),
		"answer-filter-error":         extender.ExtenderFilterResult{Error: "no profile for function segmentation"},
		"answer-prioritize":           extender.HostPriorityList{{Host: names[0], Score: 10}, {Host: names[1], Score: 0}},
		"answer-bind":                 extender.ExtenderBindingResult{},
		"answer-bind-error":           extender.ExtenderBindingResult{Error: "GPU 0: 40 % free, 55 % asked"},
		"answer-preempt":              preemptionAnswer(victim),
		"answer-preempt-nothing-left": extender.ExtenderPreemptionResult{},
	}
}

// functionPod is a pod as the scheduler sends it for a stage of a workflow, with our labels.
func functionPod(name string, number int) *core.Pod {
	priority := int32(100)
	amounts := core.ResourceList{
		core.ResourceCPU: resource.MustParse("2"),
		gpuPercent:       resource.MustParse("25"),
	}
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name:              name,
			Namespace:         "default",
			UID:               types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", number)),
			ResourceVersion:   "4711",
			CreationTimestamp: created,
			Labels: map[string]string{
				group + "/workflow": "image-classification",
				group + "/stage":    "segmentation",
				group + "/request":  "image-classification-0001",
			},
			Annotations: map[string]string{
				group + "/arrival": "2026-01-02T03:04:05.250Z",
				group + "/queued":  "3",
			},
		},
		Spec: core.PodSpec{
			SchedulerName: "esg-scheduler",
			Priority:      &priority,
			Containers: []core.Container{{
				Name:      "function",
				Image:     "example.org/segmentation:1",
				Resources: core.ResourceRequirements{Requests: amounts, Limits: amounts},
				Env: []core.EnvVar{{
					Name: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
					ValueFrom: &core.EnvVarSource{FieldRef: &core.ObjectFieldSelector{
						APIVersion: "v1",
						FieldPath:  "metadata.annotations['" + group + "/gpu-percent']",
					}},
				}},
			}},
		},
		Status: core.PodStatus{Phase: core.PodPending, QOSClass: core.PodQOSBurstable},
	}
}

// plainPod is none of ours: no label, no annotation, not even a resource request.
func plainPod() *core.Pod {
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "plain", Namespace: "default", CreationTimestamp: created},
		Spec:       core.PodSpec{Containers: []core.Container{{Name: "main", Image: "example.org/plain"}}},
	}
}

// unicodePod has text outside ASCII, and characters that encoding/json escapes, where the API
// server allows them.
func unicodePod() *core.Pod {
	pod := functionPod("unicode", 3)
	pod.Annotations["example.org/owner"] = "Zoë <zoë@example.org> & 日本語 \u2028 \U0001F680"
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
		core.EnvVar{Name: "GREETING", Value: "größer\t\"naïve\"\n"})
	return pod
}

// nodes are what a scheduler sends when the extender is not nodeCacheCapable.
func nodes(names []string) *core.NodeList {
	list := &core.NodeList{}
	for _, name := range names {
		amounts := core.ResourceList{
			core.ResourceCPU:    resource.MustParse("16"),
			core.ResourceMemory: resource.MustParse("128Gi"),
			core.ResourcePods:   resource.MustParse("110"),
			gpuPercent:          resource.MustParse("100"),
		}
		inventory := `[{"index":0,"uuid":"GPU-` + name + `","model":"NVIDIA A100-SXM4-80GB",` +
			`"memory_mib":81920,"multiprocessors":108,"healthy":true}]`
		list.Items = append(list.Items, core.Node{
			ObjectMeta: meta.ObjectMeta{
				Name:              name,
				CreationTimestamp: created,
				Annotations:       map[string]string{group + "/gpus": inventory},
			},
			Status: core.NodeStatus{Capacity: amounts, Allocatable: amounts},
		})
	}
	return list
}

func binding(pod *core.Pod, node string) extender.ExtenderBindingArgs {
	return extender.ExtenderBindingArgs{
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node,
	}
}

func metaVictims(victim *core.Pod) map[string]*extender.MetaVictims {
	return map[string]*extender.MetaVictims{
		"node-000": {Pods: []*extender.MetaPod{{UID: string(victim.UID)}}, NumPDBViolations: 1},
	}
}

func preemptionMeta(pod, victim *core.Pod) extender.ExtenderPreemptionArgs {
	return extender.ExtenderPreemptionArgs{Pod: pod, NodeNameToMetaVictims: metaVictims(victim)}
}

func preemptionVictims(pod, victim *core.Pod) extender.ExtenderPreemptionArgs {
	victims := &extender.Victims{Pods: []*core.Pod{victim}, NumPDBViolations: 1}
	return extender.ExtenderPreemptionArgs{
		Pod:               pod,
		NodeNameToVictims: map[string]*extender.Victims{"node-000": victims},
	}
}

func preemptionAnswer(victim *core.Pod) extender.ExtenderPreemptionResult {
	return extender.ExtenderPreemptionResult{NodeNameToMetaVictims: metaVictims(victim)}
}

func filterAnswer(names *[]string, list *core.NodeList) extender.ExtenderFilterResult {
	return extender.ExtenderFilterResult{
		NodeNames:                  names,
		Nodes:                      list,
		FailedNodes:                extender.FailedNodesMap{"node-003": "GPU 0: 40 % free, 55 % asked"},
		FailedAndUnresolvableNodes: extender.FailedNodesMap{"node-004": "no GPU"},
	}
}
