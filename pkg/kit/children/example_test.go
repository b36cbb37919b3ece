package children_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

func Example() {
	rules := children.Rules{
		Owner:   apply.Owner{Manager: "parlor-controller"},
		Kind:    "Parlor",
		Reasons: children.Reasons{Refused: "Refused", Created: "Created"},
	}
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	menu := children.Need{
		Kind: "ConfigMap",
		Child: func() apply.Child {
			return apply.Child{Resource: configMaps, Want: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "menu", Namespace: "town"},
				Data:       map[string]string{"today": "sundae"},
			}}
		},
	}
	now := time.Unix(0, 0)

	// There is no such ConfigMap, so it is to be created; but there is a quota.
	decision := rules.Decide(menu)
	quota := apierrors.NewForbidden(configMaps.GroupResource(), "menu", errors.New("exceeded quota"))
	var requeueAfter time.Duration
	menu.Last, requeueAfter = rules.Remember(menu.Last, decision, children.Outcome{Err: quota}, nil, now)
	fmt.Println("again after", requeueAfter)

	// Right after that, it is not tried again.
	decision = rules.BackOff(rules.Decide(menu), menu.Last, nil, now)
	fmt.Println(decision.Verdict == children.Wait, decision.Message)

	// A second later, it is.
	decision = rules.BackOff(rules.Decide(menu), menu.Last, nil, now.Add(time.Second))
	created := children.Outcome{}
	for _, child := range decision.Children {
		created.Written = append(created.Written, child.Want)
	}
	for _, event := range rules.Events(menu, decision, created) {
		fmt.Println(event.Reason, event.Note)
	}
	// Output:
	// again after 1s
	// true configmaps "menu" is forbidden: exceeded quota
	// Created Created ConfigMap "menu"
}
