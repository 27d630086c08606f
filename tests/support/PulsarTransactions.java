import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Publishes messages to a topic in transactions, which the Python client does not have: SERVICE_URL TOPIC, then for each
 * transaction `commit`, `abort` or `open`, and its payload. It ends without ending those that are `open`. */
public class PulsarTransactions {
    public static void main(String[] words) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(words[0]).enableTransaction(true).build();
        Producer<byte[]> producer = client.newProducer().topic(words[1]).sendTimeout(0, TimeUnit.SECONDS).create();
        for (int at = 2; at < words.length; at += 2) {
            Transaction transaction =
                client.newTransaction().withTransactionTimeout(1, TimeUnit.HOURS).build().get();
            producer.newMessage(transaction).value(words[at + 1].getBytes("UTF-8")).send();
            if (words[at].equals("commit")) {
                transaction.commit().get();
            } else if (words[at].equals("abort")) {
                transaction.abort().get();
            }
        }
        System.out.println("published");
        Runtime.getRuntime().halt(0);
    }
}
