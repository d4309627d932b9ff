package rueidis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/setnxlock/setnxlock/compat"
	adapter "github.com/setnxlock/setnxlock/compat/adapter/rueidis"
	"github.com/setnxlock/setnxlock/txlock"
)

func ExampleSource() {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}, AlwaysRESP2: true, DisableCache: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks := compat.NewOn(adapter.Source(client), txlock.Renamed{}, compat.Options{})
	err = locks.Do(context.Background(), "report", 30*time.Second, func(ctx context.Context) error {
		return client.Do(ctx, client.B().Set().Key("report:state").Value("running").Build()).Error()
	})
	fmt.Println(err)
}
